"""Labels of multilabel rows, for refits."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of earlier rows only the drawn label is known."""
    op.add_column("labels", sa.Column("label_set", sa.LargeBinary()))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("labels", "label_set")
