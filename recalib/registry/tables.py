"""The tables of keys and requests, the catalogue of models, and events."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

# It also has the tables of `monitoring_tables`: who imports a module of this package imports all of
# its tables. Names of constraints are for use in migrations.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite generates keys only if their type is exactly INTEGER.
Key = BigInteger().with_variant(Integer, "sqlite")
# Collation C sorts by bytes, as SQLite does: pages have the same order in both databases.
Name = String(128).with_variant(String(128, collation="C"), "postgresql")
Json = JSON(none_as_null=True)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", Key, primary_key=True),
    # Unique over revoked keys too: a name in the audit trail means one key.
    Column("name", Name, nullable=False, unique=True),
    # SHA-256 of the secret; the secret is not stored.
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("scopes", Json, nullable=False),
    # Names of models; null for all.
    Column("models", Json),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    # Limits of the key, see `recalib.core.access.Limits`; null for none.
    Column("limits", Json),
)

sessions = Table(
    "sessions",
    METADATA,
    # SHA-256 of the token, which a browser holds in a cookie and the registry does not store.
    Column("digest", LargeBinary, primary_key=True),
    # Of the secret of the API key that signed in: a session ends with its key. Of a person, of the
    # name: no key has such a secret.
    Column("key_digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    # Name, scopes and models of a person whom the issuer of tokens has signed in; null for a key.
    Column("principal", Json),
)

signing_keys = Table(
    "signing_keys",
    METADATA,
    # The newest key signs. The primary key lets only one of two concurrent inserts succeed.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

audit = Table(
    "audit",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("actor", Text, nullable=False),
    Column("action", String(64), nullable=False),
    # A name, not a foreign key: an entry outlives its model.
    Column("model", Name),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("result", String(16), nullable=False),
    Index("ix_audit_actor_id", "actor", "id"),
    Index("ix_audit_model_id", "model", "id"),
)

idempotency = Table(
    "idempotency",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False, index=True),
)

models = Table(
    "models",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("classes", Integer, nullable=False),
    Column("labels", Json),
    Column("latest_version", Integer, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    # See `recalib.core.monitoring_settings`; null for the defaults.
    Column("monitoring", Json),
    # `multiclass` or `multilabel`.
    Column("task", String(16), nullable=False, server_default="multiclass"),
    Column("description", Text, nullable=False, server_default=""),
    # A list of text; null for none.
    Column("tags", Json),
    # See `recalib.core.retention_settings`; null for the defaults.
    Column("retention", Json),
    # The name of a deleted model is not its own any more: see `recalib.registry.deletions`.
    Column("deleted_at", Double),
    # When its content was erased. The row stays, or SQLite would use its id again, which the ids of
    # its predictions hold.
    Column("purged_at", Double),
    # `may_change`, `keep_order` or `keep`; null for multilabel models, and for models of a time
    # when every fit kept the predicted classes.
    Column("predictions", String(16)),
    # Whether it answers with `identity` without a champion. Servers of earlier versions, and models
    # of that time, refuse.
    Column("serve_uncalibrated", Boolean, nullable=False, server_default=false()),
)

logit_scales = Table(
    "logit_scales",
    METADATA,
    # No foreign keys: a scale outlives its data set, and 0 is the live traffic of the model.
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("dataset_id", Key, primary_key=True, autoincrement=False),
    # See `recalib.stats.logit_scale`.
    Column("summary", Json, nullable=False),
)

datasets = Table(
    "datasets",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("model_id", Key, ForeignKey("models.id"), nullable=False),
    Column("name", Name, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("classes", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("input", String(16), nullable=False),
    Column("metrics", Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("tags", Json),
    # The name of a deleted data set is not its own any more: see `recalib.registry.deletions`.
    Column("deleted_at", Double),
    # Of a data set by reference, whose blob is a manifest; null for uploads.
    Column("uri", Text),
    # Sorted digests of the rows, 8 bytes each; null until a fit has read the data. The large column
    # is last: SQLite reads all columns before one that a query selects.
    Column("row_digests", LargeBinary),
    UniqueConstraint("model_id", "name"),
)

jobs = Table(
    "jobs",
    METADATA,
    # The order of arrival; callers see `id`.
    Column("sequence", Key, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("kind", Name, nullable=False),
    Column("model_id", Key, ForeignKey("models.id")),
    Column("unique_key", Text),
    Column("payload", Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("run_after", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("worker", Text),
    Column("fence", BigInteger, nullable=False),
    Column("lease_expires", Double),
    Column("cancel_requested", Boolean, nullable=False),
    Column("progress", Json),
    Column("checkpoint", Json),
    Column("result", Json),
    Column("error", Text),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    # The `traceparent` of the request that created the job, if it was traced.
    Column("trace", String(64)),
    # A calibrator that the job publishes, and the digests of its rows; null when the job has ended.
    Column("parameters", LargeBinary),
    Column("row_digests", LargeBinary),
    # Of a training run.
    Column("deleted_at", Double),
    # The key or token that requested the job; empty for a job that the server requested itself.
    Column("owner", Text, nullable=False, server_default=""),
    CheckConstraint(
        "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
    ),
    Index("ix_jobs_state_priority_sequence", "state", "priority", "sequence"),
    Index("ix_jobs_model_id_sequence", "model_id", "sequence"),
    # Whose turn it is, see `Jobs.claim`.
    Index("ix_jobs_started_at", "started_at"),
    Index("ix_jobs_owner_started_at", "owner", "started_at"),
    Index("ix_jobs_model_id_started_at", "model_id", "started_at"),
    # At most one unfinished job per key: two schedulers cannot create a periodic job twice.
    Index(
        "uq_jobs_unfinished_unique_key",
        "unique_key",
        unique=True,
        sqlite_where=text("state IN ('queued', 'running')"),
        postgresql_where=text("state IN ('queued', 'running')"),
    ),
)

calibrators = Table(
    "calibrators",
    METADATA,
    Column("model_id", Key, ForeignKey("models.id"), primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("dataset_id", Key, ForeignKey("datasets.id")),
    # Unique: a job publishes once, also if it is retried.
    Column("job_id", String(32), ForeignKey("jobs.id"), nullable=False, unique=True),
    Column("card", Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("tags", Json),
    Column("deleted_at", Double),
    # The large columns are last, as in `datasets`.
    Column("parameters", LargeBinary, nullable=False),
    # As in `datasets`, for a fit to rows of no data set.
    Column("row_digests", LargeBinary),
)

aliases = Table(
    "aliases",
    METADATA,
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("alias", Name, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("revision", Key, ForeignKey("alias_changes.revision"), nullable=False),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
)

alias_changes = Table(
    "alias_changes",
    METADATA,
    Column("revision", Key, primary_key=True, autoincrement=False),
    Column("model_id", Key, ForeignKey("models.id"), nullable=False),
    Column("alias", Name, nullable=False),
    Column("from_version", Integer),
    # 0 if the alias was deleted.
    Column("to_version", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("changed_at", Double, nullable=False),
    Index("ix_alias_changes_model_id_alias_revision", "model_id", "alias", "revision"),
)

tombstones = Table(
    "tombstones",
    METADATA,
    # What servers no longer serve, since a revision of the aliases.
    Column("revision", Key, primary_key=True, autoincrement=False),
    # The name of the model when it was deleted or renamed.
    Column("model", Name, nullable=False),
    # A version or an alias; null for the whole model.
    Column("selector", Name),
)

# One row: the number of changes of aliases, and of deletions. `Aliases.lock_revision` says why it
# is not a sequence.
alias_revision = Table("alias_revision", METADATA, Column("revision", Key, nullable=False))

events = Table(
    "events",
    METADATA,
    # From `event_sequence`: `recalib.registry.events` says why it is not a sequence.
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False, index=True),
    Column("type", String(64), nullable=False),
    # A name, not a foreign key: an event outlives its model.
    Column("model", Name),
    Column("data", Json, nullable=False),
    Index("ix_events_model_id", "model", "id"),
)

# One row: the id of the newest event.
event_sequence = Table("event_sequence", METADATA, Column("last", Key, nullable=False))

webhooks = Table(
    "webhooks",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("url", Text, nullable=False),
    # Events of this model only; null for all.
    Column("model", Name),
    # Types of events, or their first words; empty for all.
    Column("types", Json, nullable=False),
    Column("format", String(16), nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("enabled", Boolean, nullable=False),
    # Why it is disabled.
    Column("reason", Text, nullable=False),
    # Events up to this id have deliveries.
    Column("position", Key, nullable=False),
    # Attempts in a row that got no answer, and when the next one may be made.
    Column("failures", Integer, nullable=False),
    Column("retry_at", Double),
    Column("lease_expires", Double),
    Column("fence", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    # Earlier secrets in hexadecimal, each with the time at which it ends; newest first.
    Column("previous_secrets", Json),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    METADATA,
    Column("webhook_id", String(32), ForeignKey("webhooks.id"), primary_key=True),
    # No foreign key: events are deleted by age.
    Column("event_id", Key, primary_key=True, autoincrement=False),
    # `pending`, `delivered` or `dead`.
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("attempted_at", Double),
    # The HTTP status of the last answer, and the reason of the last failure.
    Column("status", Integer),
    Column("error", Text, nullable=False),
    Index("ix_webhook_deliveries_state_next_attempt_at", "state", "next_attempt_at"),
)
