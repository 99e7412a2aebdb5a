"""The sum of confidences of all traffic; rows of before have none."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    for name, kind in (("confidence_count", sa.BigInteger()), ("confidence_sum", sa.Double())):
        op.add_column("traffic", sa.Column(name, kind, server_default="0", nullable=False))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("traffic", "confidence_sum")
    op.drop_column("traffic", "confidence_count")
