"""The calibrator that a job publishes, and the digests of its rows."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both."""
    for name in ("parameters", "row_digests"):
        op.add_column("jobs", sa.Column(name, sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Remove both."""
    for name in ("row_digests", "parameters"):
        op.drop_column("jobs", name)
