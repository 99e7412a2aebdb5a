"""Jobs have owners, so that keys and models take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_INDEXES = (("started_at",), ("owner", "started_at"), ("model_id", "started_at"))


def upgrade() -> None:
    """Add the column; jobs of before have no owner."""
    op.add_column("jobs", sa.Column("owner", sa.Text(), nullable=False, server_default=""))
    for columns in _INDEXES:
        op.create_index(f"ix_jobs_{'_'.join(columns)}", "jobs", columns)


def downgrade() -> None:
    """Drop the column. Who owns the jobs is lost."""
    for columns in _INDEXES:
        op.drop_index(f"ix_jobs_{'_'.join(columns)}", "jobs")
    op.drop_column("jobs", "owner")
