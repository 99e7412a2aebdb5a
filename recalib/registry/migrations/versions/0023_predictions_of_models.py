"""Which predictions a fit may change; models of before keep theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; null is a model of before."""
    op.add_column("models", sa.Column("predictions", sa.String(length=16)))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("models", "predictions")
