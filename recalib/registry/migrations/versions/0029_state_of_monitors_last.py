"""The large column of monitors is the last one.

SQLite reads a row from its start: a list of models read the states of all tests to reach statuses.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Move the column; PostgreSQL stores large values apart."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("ALTER TABLE monitors ADD COLUMN moved JSON NOT NULL DEFAULT '{}'")
        op.execute("UPDATE monitors SET moved = state")
        op.execute("ALTER TABLE monitors DROP COLUMN state")
        op.execute("ALTER TABLE monitors RENAME COLUMN moved TO state")


def downgrade() -> None:
    """Leave the column where it is: its place is no part of the schema."""
