"""Sessions of people whom the issuer of tokens has signed in."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("sessions", sa.Column("principal", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Remove it: these people sign in again."""
    op.execute("DELETE FROM sessions WHERE principal IS NOT NULL")
    op.drop_column("sessions", "principal")
