"""Events, and the number of the newest."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")


def upgrade() -> None:
    """Add them."""
    op.create_table("event_sequence", sa.Column("last", _KEY, nullable=False))
    op.execute("INSERT INTO event_sequence (last) VALUES (0)")
    op.create_table(
        "events",
        sa.Column("id", _KEY, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"])
    op.create_index("ix_events_model_id", "events", ["model", "id"])


def downgrade() -> None:
    """Remove them."""
    op.drop_table("events")
    op.drop_table("event_sequence")
