"""API keys have limits of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; keys that there are have none."""
    op.add_column("api_keys", sa.Column("limits", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Take it away: keys go on, without limits of their own."""
    op.drop_column("api_keys", "limits")
