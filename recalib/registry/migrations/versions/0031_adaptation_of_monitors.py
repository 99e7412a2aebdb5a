"""The state of the adaptation to label shift, of each monitor."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, in SQLite before the large one: see 0029."""
    op.add_column("monitors", sa.Column("adaptation", sa.JSON(none_as_null=True)))
    if op.get_bind().dialect.name == "sqlite":
        op.execute("ALTER TABLE monitors ADD COLUMN moved JSON NOT NULL DEFAULT '{}'")
        op.execute("UPDATE monitors SET moved = state")
        op.execute("ALTER TABLE monitors DROP COLUMN state")
        op.execute("ALTER TABLE monitors RENAME COLUMN moved TO state")


def downgrade() -> None:
    """Remove it: adaptations begin again."""
    op.drop_column("monitors", "adaptation")
