"""Labels carry the number of their group of dependent rows."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the number, 0 for none: servers of earlier versions do not write it."""
    op.add_column(
        "labels", sa.Column("group_number", sa.BigInteger(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Drop the column: dependent rows then count as independent ones."""
    op.drop_column("labels", "group_number")
