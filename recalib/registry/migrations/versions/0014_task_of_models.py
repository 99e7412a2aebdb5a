"""The task of models; those of before have one class for each row."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    task = sa.Column("task", sa.String(length=16), server_default="multiclass", nullable=False)
    op.add_column("models", task)


def downgrade() -> None:
    """Remove it."""
    op.drop_column("models", "task")
