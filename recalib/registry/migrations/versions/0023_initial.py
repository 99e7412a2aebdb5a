"""The schema of the last development version.

It replaces all steps before it and keeps the revision of the last, so a database at 0023 needs the
later steps only (docs/decisions/0005-one-migration.md).
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
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
    "alias_revision",
    "idempotency",
    "models",
    "alias_changes",
    "datasets",
    "jobs",
    "calibrators",
    "aliases",
    "dataset_details",
    "calibrator_details",
    "tombstones",
    "signing_keys",
    "labels",
    "traffic",
    "class_traffic",
    "monitors",
    "cohorts",
    "assessments",
    "monitoring_events",
    "captures",
    "candidates",
    "api_keys",
    "audit",
    "event_sequence",
    "events",
    "webhooks",
    "webhook_deliveries",
)


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
    op.create_table("alias_revision", sa.Column("revision", _KEY, nullable=False))
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"])
    op.create_table(
        "models",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("labels", _JSON),
        sa.Column("latest_version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("monitoring", _JSON),
        sa.Column("task", sa.String(length=16), nullable=False, server_default="multiclass"),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("retention", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("purged_at", sa.Double()),
        sa.Column("predictions", sa.String(length=16)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "alias_changes",
        sa.Column("revision", _KEY, autoincrement=False, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("from_version", sa.Integer()),
        sa.Column("to_version", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_alias_changes_model_id_models")
        ),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_alias_changes")),
    )
    op.create_index(
        "ix_alias_changes_model_id_alias_revision",
        "alias_changes",
        ["model_id", "alias", "revision"],
    )
    op.create_table(
        "datasets",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("classes", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("input", sa.String(length=16), nullable=False),
        sa.Column("metrics", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("row_digests", sa.LargeBinary()),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_datasets_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_datasets_model_id_name")),
    )
    op.create_table(
        "jobs",
        sa.Column("sequence", _KEY, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("model_id", _KEY),
        sa.Column("unique_key", sa.Text()),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
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
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id_models")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
    )
    op.create_index("ix_jobs_model_id_sequence", "jobs", ["model_id", "sequence"])
    op.create_index("ix_jobs_state_priority_sequence", "jobs", ["state", "priority", "sequence"])
    op.create_index(
        "uq_jobs_unfinished_unique_key",
        "jobs",
        ["unique_key"],
        unique=True,
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
    op.create_table(
        "calibrators",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", _KEY),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("card", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("parameters", sa.LargeBinary(), nullable=False),
        sa.Column("row_digests", sa.LargeBinary()),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_calibrators_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_calibrators_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_calibrators_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_calibrators")),
        sa.UniqueConstraint("job_id", name=op.f("uq_calibrators_job_id")),
    )
    op.create_table(
        "aliases",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", _KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["calibrators.model_id", "calibrators.version"],
            name=op.f("fk_aliases_model_id_version_calibrators"),
        ),
        sa.ForeignKeyConstraint(
            ["revision"], ["alias_changes.revision"], name=op.f("fk_aliases_revision_alias_changes")
        ),
        sa.PrimaryKeyConstraint("model_id", "alias", name=op.f("pk_aliases")),
    )
    op.create_table(
        "dataset_details",
        sa.Column("dataset_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("uri", sa.Text()),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_details_dataset_id_datasets")
        ),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_details")),
    )
    op.create_table(
        "calibrator_details",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("tags", _JSON),
        sa.Column("deleted_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_calibrator_details_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_calibrator_details")),
    )
    op.create_table(
        "tombstones",
        sa.Column("revision", _KEY, autoincrement=False, nullable=False),
        sa.Column("model", _NAME, nullable=False),
        sa.Column("selector", _NAME),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_tombstones")),
    )
    # Each change of an alias increments the number in this one row.
    op.execute("INSERT INTO alias_revision (revision) VALUES (0)")


def _create_monitoring() -> None:
    """Create the tables of labels, traffic, monitors and candidates."""
    op.create_table(
        "signing_keys",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "labels",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predicted_at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("raw_confidence", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("predicted", sa.Integer(), nullable=False),
        sa.Column("label", sa.Integer(), nullable=False),
        sa.Column("disputed", sa.Boolean(), nullable=False),
        sa.Column("labelled_at", sa.Double(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("label_set", sa.LargeBinary()),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "predicted_at", "digest", name=op.f("pk_labels")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "traffic",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("segment", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bin", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.Column("confidence_count", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("confidence_sum", sa.Double(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "segment", "bin", name=op.f("pk_traffic")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "class_traffic",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("predicted", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("predictions", sa.BigInteger(), nullable=False),
        sa.Column("max_error_sum", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "predicted", name=op.f("pk_class_traffic")
        ),
        sqlite_with_rowid=False,
    )
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
        sa.Column("replayed_through", sa.Double()),
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
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint(
            "model_id", "version", "started_at", "segment", name=op.f("pk_cohorts")
        ),
    )
    op.create_table(
        "assessments",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("started_at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("assessed_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", _JSON, nullable=False),
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("model_id", "started_at", "version", name=op.f("pk_assessments")),
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
        sa.Column("replayed", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_monitoring_events_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitoring_events")),
    )
    op.create_index("ix_monitoring_events_model_id_id", "monitoring_events", ["model_id", "id"])
    op.create_table(
        "captures",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("model_id", _KEY, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_captures_model_id_models")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_captures")),
    )
    op.create_index("ix_captures_model_id_last_at", "captures", ["model_id", "last_at"])
    op.create_table(
        "candidates",
        sa.Column("model_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("champion", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("through", sa.Double(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("state", _JSON, nullable=False),
        sa.Column("verdict", sa.String(length=16)),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["model_id", "version"],
            ["calibrators.model_id", "calibrators.version"],
            name=op.f("fk_candidates_model_id_version_calibrators"),
        ),
        sa.PrimaryKeyConstraint("model_id", "version", name=op.f("pk_candidates")),
    )
    op.create_index(
        "uq_candidates_undecided_model_id",
        "candidates",
        ["model_id"],
        unique=True,
        sqlite_where=_UNDECIDED,
        postgresql_where=_UNDECIDED,
    )


def _create_access() -> None:
    """Create the tables of API keys and of the audit trail."""
    op.create_table(
        "api_keys",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", _JSON, nullable=False),
        sa.Column("models", _JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("limits", _JSON),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("name", name=op.f("uq_api_keys_name")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_table(
        "audit",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_actor_id", "audit", ["actor", "id"])
    op.create_index("ix_audit_model_id", "audit", ["model", "id"])


def _create_notification() -> None:
    """Create the tables of events and webhooks."""
    op.create_table("event_sequence", sa.Column("last", _KEY, nullable=False))
    op.execute("INSERT INTO event_sequence (last) VALUES (0)")
    op.create_table(
        "events",
        sa.Column("id", _KEY, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("model", _NAME),
        sa.Column("data", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"])
    op.create_index("ix_events_model_id", "events", ["model", "id"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(32), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("webhook_id", sa.String(32), nullable=False),
        sa.Column("event_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempted_at", sa.Double()),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id_webhooks"),
        ),
        sa.PrimaryKeyConstraint("webhook_id", "event_id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_state_next_attempt_at",
        "webhook_deliveries",
        ["state", "next_attempt_at"],
    )
