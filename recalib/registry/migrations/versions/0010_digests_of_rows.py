"""Digests of rows, of data sets and of fits to sampled logits."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for table in ("datasets", "calibrators"):
        op.add_column(table, sa.Column("row_digests", sa.LargeBinary()))


def downgrade() -> None:
    """Drop the columns."""
    for table in ("datasets", "calibrators"):
        op.drop_column(table, "row_digests")
