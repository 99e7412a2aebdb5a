"""What is known of how calibrators hold up: a monitor a version, cohorts, and what has happened."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# What the columns were when this was released; the module of tables may have moved on.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Create the tables; monitors begin with the first run of the job."""
    op.create_table(
        "monitors",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("options", _JSON, nullable=False),
        sa.Column("through", sa.Double(), nullable=False),
        sa.Column("state", _JSON, nullable=False),
        sa.Column("status", _JSON, nullable=False),
        sa.Column("totals", _JSON, nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("assessed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["calibrators.model_id", "calibrators.version"],
            name=op.f("fk_monitors_model_id_version_calibrators"),
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_monitors")),
    )
    op.create_table(
        "cohorts",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("segment", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("sums", _JSON, nullable=False),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "segment", name=op.f("pk_cohorts")
        ),
    )
    op.create_table(
        "monitoring_events",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", _JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_monitoring_events_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitoring_events")),
    )
    op.create_index("ix_monitoring_events_model_id_id", "monitoring_events", ["model_id", "id"])


def downgrade() -> None:
    """Drop them; what calibrators have proven is forgotten."""
    op.drop_table("monitoring_events")
    op.drop_table("cohorts")
    op.drop_table("monitors")
