"""Jobs remember the trace of what asked for them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column, of which jobs that there are have nothing."""
    op.add_column("jobs", sa.Column("trace", sa.String(64)))


def downgrade() -> None:
    """Take it away."""
    op.drop_column("jobs", "trace")
