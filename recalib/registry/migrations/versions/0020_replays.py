"""Monitoring from a log of the past is marked as replayed."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_TABLES = ("cohorts", "assessments", "monitoring_events")


def upgrade() -> None:
    """Add the columns; nothing of earlier versions is replayed."""
    op.add_column("monitors", sa.Column("replayed_through", sa.Double()))
    for table in _TABLES:
        op.add_column(
            table, sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false())
        )


def downgrade() -> None:
    """Remove them."""
    for table in _TABLES:
        op.drop_column(table, "replayed")
    op.drop_column("monitors", "replayed_through")
