"""Data sets by reference: the URI of their files."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; every earlier data set was uploaded."""
    op.add_column("dataset_details", sa.Column("uri", sa.Text()))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("dataset_details", "uri")
