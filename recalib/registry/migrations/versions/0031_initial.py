"""The schema of the last development version.

It replaces all steps before it and keeps the revision of the last, so a database at 0031 needs the
later steps only (docs/decisions/0005-one-migration.md). The names of keys and indexes follow from
the convention of `recalib.registry.tables`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = None
branch_labels = None
depends_on = None

# A migration repeats the column types: `recalib.registry.tables` describes the newest schema only.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)
_UNFINISHED = sa.text("state IN ('queued', 'running')")
_UNDECIDED = sa.text("verdict IS NULL")

# Each table follows the tables that its foreign keys refer to.
_TABLES = (
    "alias_revision", "idempotency", "models", "logit_scales", "alias_changes", "datasets", "jobs",
    "calibrators", "aliases", "tombstones", "signing_keys", "labels", "traffic", "class_traffic",
    "monitors", "cohorts", "assessments", "monitoring_events", "captures", "candidates", "api_keys",
    "sessions", "audit", "event_sequence", "events", "webhooks", "webhook_deliveries",
)  # fmt: skip


def upgrade() -> None:
    """Create all tables."""
    _create_registry()
    _create_monitoring()
    _create_access()
    _create_notification()


def downgrade() -> None:
    """Drop all tables."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_registry() -> None:
    """Create the tables of models, datasets, jobs, calibrators and aliases."""
    op.create_table(
        "alias_revision",
        sa.Column("revision", _KEY, nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False, index=True),
    )
    op.create_table(
        "models",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("labels", _JSON),
        sa.Column("latest_version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("monitoring", _JSON),
        sa.Column("task", sa.String(16), nullable=False, server_default="multiclass"),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("retention", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("purged_at", sa.Double()),
        sa.Column("predictions", sa.String(16)),
        sa.Column("serve_uncalibrated", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "logit_scales",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("dataset_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("summary", _JSON, nullable=False),
    )
    op.create_table(
        "alias_changes",
        sa.Column("revision", _KEY, primary_key=True, autoincrement=False),
        sa.Column("model_id", _KEY, sa.ForeignKey("models.id"), nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("from_version", sa.Integer()),
        sa.Column("to_version", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Index("ix_alias_changes_model_id_alias_revision", "model_id", "alias", "revision"),
    )
    op.create_table(
        "datasets",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("model_id", _KEY, sa.ForeignKey("models.id"), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("input", sa.String(16), nullable=False),
        sa.Column("metrics", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("uri", sa.Text()),
        sa.Column("row_digests", sa.LargeBinary()),
        sa.UniqueConstraint("model_id", "name"),
    )
    op.create_table(
        "jobs",
        sa.Column("sequence", _KEY, primary_key=True),
        sa.Column("id", sa.String(32), nullable=False, unique=True),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("model_id", _KEY, sa.ForeignKey("models.id")),
        sa.Column("unique_key", sa.Text()),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires", sa.Double()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("progress", _JSON),
        sa.Column("checkpoint", _JSON),
        sa.Column("result", _JSON),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("trace", sa.String(64)),
        sa.Column("parameters", sa.LargeBinary()),
        sa.Column("row_digests", sa.LargeBinary()),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("owner", sa.Text(), nullable=False, server_default=""),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
        ),
        sa.Index("ix_jobs_model_id_sequence", "model_id", "sequence"),
        sa.Index("ix_jobs_model_id_started_at", "model_id", "started_at"),
        sa.Index("ix_jobs_owner_started_at", "owner", "started_at"),
        sa.Index("ix_jobs_started_at", "started_at"),
        sa.Index("ix_jobs_state_priority_sequence", "state", "priority", "sequence"),
        sa.Index(
            "uq_jobs_unfinished_unique_key",
            "unique_key",
            unique=True,
            sqlite_where=_UNFINISHED,
            postgresql_where=_UNFINISHED,
        ),
    )
    op.create_table(
        "calibrators",
        sa.Column(
            "model_id", _KEY, sa.ForeignKey("models.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("dataset_id", _KEY, sa.ForeignKey("datasets.id")),
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id"), nullable=False, unique=True),
        sa.Column("card", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("parameters", sa.LargeBinary(), nullable=False),
        sa.Column("row_digests", sa.LargeBinary()),
    )
    op.create_table(
        "aliases",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("alias", _NAME, primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", _KEY, sa.ForeignKey("alias_changes.revision"), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id", "version"], ["calibrators.model_id", "calibrators.version"]
        ),
    )
    op.create_table(
        "tombstones",
        sa.Column("revision", _KEY, primary_key=True, autoincrement=False),
        sa.Column("model", _NAME, nullable=False),
        sa.Column("selector", _NAME),
    )
    # Each change of an alias increments the number in this one row.
    op.execute("INSERT INTO alias_revision (revision) VALUES (0)")


def _create_monitoring() -> None:
    """Create the tables of labels, traffic, monitors and candidates."""
    op.create_table(
        "signing_keys",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "labels",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("predicted_at", sa.Double(), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("raw_confidence", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("predicted", sa.Integer(), nullable=False),
        sa.Column("label", sa.Integer(), nullable=False),
        sa.Column("disputed", sa.Boolean(), nullable=False),
        sa.Column("labelled_at", sa.Double(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("label_set", sa.LargeBinary()),
        sa.Column("group_number", sa.BigInteger(), nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "traffic",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("started_at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("segment", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("bin", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.Column("confidence_count", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("confidence_sum", sa.Double(), nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "class_traffic",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("started_at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("predicted", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.Column("max_error_sum", sa.Double(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "monitors",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("options", _JSON, nullable=False),
        sa.Column("through", sa.Double(), nullable=False),
        sa.Column("status", _JSON, nullable=False),
        sa.Column("totals", _JSON, nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("assessed_at", sa.Double(), nullable=False),
        sa.Column("replayed_through", sa.Double()),
        sa.Column("adaptation", _JSON),
        sa.Column("state", _JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id", "version"], ["calibrators.model_id", "calibrators.version"]
        ),
    )
    op.create_table(
        "cohorts",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("started_at", sa.Double(), primary_key=True, autoincrement=False),
        sa.Column("segment", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("sums", _JSON, nullable=False),
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "assessments",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("started_at", sa.Double(), primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("assessed_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", _JSON, nullable=False),
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "monitoring_events",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("model_id", _KEY, sa.ForeignKey("models.id"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", _JSON, nullable=False),
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Index("ix_monitoring_events_model_id_id", "model_id", "id"),
    )
    op.create_table(
        "captures",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("model_id", _KEY, sa.ForeignKey("models.id"), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Index("ix_captures_model_id_last_at", "model_id", "last_at"),
    )
    op.create_table(
        "candidates",
        sa.Column("model_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("champion", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("through", sa.Double(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("state", _JSON, nullable=False),
        sa.Column("verdict", sa.String(16)),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["model_id", "version"], ["calibrators.model_id", "calibrators.version"]
        ),
        sa.Index(
            "uq_candidates_undecided_model_id",
            "model_id",
            unique=True,
            sqlite_where=_UNDECIDED,
            postgresql_where=_UNDECIDED,
        ),
    )


def _create_access() -> None:
    """Create the tables of API keys, sessions and the audit trail."""
    op.create_table(
        "api_keys",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False, unique=True),
        sa.Column("scopes", _JSON, nullable=False),
        sa.Column("models", _JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("limits", _JSON),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("key_digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False, index=True),
        sa.Column("principal", _JSON),
    )
    op.create_table(
        "audit",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("at", sa.Double(), nullable=False, index=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Index("ix_audit_actor_id", "actor", "id"),
        sa.Index("ix_audit_model_id", "model", "id"),
    )


def _create_notification() -> None:
    """Create the tables of events and webhooks."""
    op.create_table(
        "event_sequence",
        sa.Column("last", _KEY, nullable=False),
    )
    op.execute("INSERT INTO event_sequence (last) VALUES (0)")
    op.create_table(
        "events",
        sa.Column("id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double(), nullable=False, index=True),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("data", _JSON, nullable=False),
        sa.Index("ix_events_model_id", "model", "id"),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("types", _JSON, nullable=False),
        sa.Column("format", sa.String(16), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("position", _KEY, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Double()),
        sa.Column("lease_expires", sa.Double()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("previous_secrets", _JSON),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("webhook_id", sa.String(32), sa.ForeignKey("webhooks.id"), primary_key=True),
        sa.Column("event_id", _KEY, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempted_at", sa.Double()),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Index("ix_webhook_deliveries_state_next_attempt_at", "state", "next_attempt_at"),
    )
