"""Every table of the registry, as the newest migration leaves it.

A test compares this with the migrated schema in both databases.
"""

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
    text,
)

__all__ = [
    "METADATA",
    "alias_changes",
    "alias_revision",
    "aliases",
    "api_keys",
    "audit",
    "calibrators",
    "candidates",
    "captures",
    "cohorts",
    "datasets",
    "idempotency",
    "jobs",
    "labels",
    "models",
    "monitoring_events",
    "monitors",
    "signing_keys",
    "traffic",
]

# Named constraints, so that later migrations can speak of them.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only where the key's type is exactly INTEGER.
_Key = BigInteger().with_variant(Integer, "sqlite")
# Collation C sorts by bytes as SQLite does, so that pages come in the same order from both.
_Name = String(128).with_variant(String(128, collation="C"), "postgresql")
_Json = JSON(none_as_null=True)

models = Table(
    "models",
    METADATA,
    Column("id", _Key, primary_key=True),
    Column("name", _Name, nullable=False, unique=True),
    Column("classes", Integer, nullable=False),
    Column("labels", _Json),
    Column("latest_version", Integer, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    # See `recalib.registry.monitoring_settings`; null where nothing was said.
    Column("monitoring", _Json),
)

datasets = Table(
    "datasets",
    METADATA,
    Column("id", _Key, primary_key=True),
    Column("model_id", _Key, ForeignKey("models.id"), nullable=False),
    Column("name", _Name, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("classes", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("input", String(16), nullable=False),
    Column("metrics", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("model_id", "name"),
)

jobs = Table(
    "jobs",
    METADATA,
    # The order of arrival; `id` is what callers see.
    Column("sequence", _Key, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("kind", _Name, nullable=False),
    Column("model_id", _Key, ForeignKey("models.id")),
    Column("unique_key", Text),
    Column("payload", _Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("run_after", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("worker", Text),
    Column("fence", BigInteger, nullable=False),
    Column("lease_expires", Double),
    Column("cancel_requested", Boolean, nullable=False),
    Column("progress", _Json),
    Column("checkpoint", _Json),
    Column("result", _Json),
    Column("error", Text),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    # The `traceparent` of what asked for it, where requests are traced.
    Column("trace", String(64)),
    CheckConstraint(
        "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
    ),
    Index("ix_jobs_state_priority_sequence", "state", "priority", "sequence"),
    Index("ix_jobs_model_id_sequence", "model_id", "sequence"),
    # At most one unfinished job of a key: what keeps two schedulers from doubling a periodic job.
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
    Column("model_id", _Key, ForeignKey("models.id"), primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("dataset_id", _Key, ForeignKey("datasets.id")),
    # Unique: a job publishes once, whatever goes wrong around it.
    Column("job_id", String(32), ForeignKey("jobs.id"), nullable=False, unique=True),
    Column("card", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    # Last, so that reading cards does not walk over it in SQLite's pages.
    Column("parameters", LargeBinary, nullable=False),
)

aliases = Table(
    "aliases",
    METADATA,
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("alias", _Name, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("revision", _Key, ForeignKey("alias_changes.revision"), nullable=False),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
)

alias_changes = Table(
    "alias_changes",
    METADATA,
    Column("revision", _Key, primary_key=True, autoincrement=False),
    Column("model_id", _Key, ForeignKey("models.id"), nullable=False),
    Column("alias", _Name, nullable=False),
    Column("from_version", Integer),
    Column("to_version", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("changed_at", Double, nullable=False),
    Index("ix_alias_changes_model_id_alias_revision", "model_id", "alias", "revision"),
)

# One row: the number of alias changes ever made. See `Aliases.set` for why it is not a sequence.
alias_revision = Table("alias_revision", METADATA, Column("revision", _Key, nullable=False))

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

signing_keys = Table(
    "signing_keys",
    METADATA,
    # The newest signs; of two that are made at once, one finds its number taken.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
)

labels = Table(
    "labels",
    METADATA,
    # Neither has a foreign key: a signed id has proven them, and ten thousand rows of a batch
    # would each be looked up again.
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # When the prediction was made. The digest alone would do as a key; with these before it,
    # labels of one time lie together, for cohorts that are read and for rows that are added.
    Column("predicted_at", Double, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, primary_key=True),
    Column("raw_confidence", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("predicted", Integer, nullable=False),
    Column("label", Integer, nullable=False),
    # Whether another label came as well, and was refused.
    Column("disputed", Boolean, nullable=False),
    Column("labelled_at", Double, nullable=False),
    # A number in the model's list of segments, from 1; 0 for a prediction of none.
    Column("segment", Integer, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

traffic = Table(
    "traffic",
    METADATA,
    # No foreign keys, as above. A row a bin and bucket of time: so many, however many requests.
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # When the bucket began, in seconds since 1970.
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("bin", Integer, primary_key=True, autoincrement=False),
    Column("predictions", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

monitors = Table(
    "monitors",
    METADATA,
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Which of the model's tests this is, from 1: each has its share of the model's alpha.
    Column("number", Integer, nullable=False),
    # Counts what has been written here: whoever has read an older turn writes nothing.
    Column("turn", BigInteger, nullable=False),
    # Those of the test, which cannot change while it goes on.
    Column("options", _Json, nullable=False),
    # Predictions before this have been looked at.
    Column("through", Double, nullable=False),
    # What `recalib.drift.Monitor` knows, what it last said, and the sums of all cohorts.
    Column("state", _Json, nullable=False),
    Column("status", _Json, nullable=False),
    Column("totals", _Json, nullable=False),
    # Labels that came after their predictions had been looked at.
    Column("late", BigInteger, nullable=False),
    Column("assessed_at", Double, nullable=False),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
)

cohorts = Table(
    "cohorts",
    METADATA,
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("started_at", Double, primary_key=True, autoincrement=False),
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("ended_at", Double, nullable=False),
    # As `recalib.drift.Sums` has them.
    Column("sums", _Json, nullable=False),
)

monitoring_events = Table(
    "monitoring_events",
    METADATA,
    Column("id", _Key, primary_key=True),
    Column("model_id", _Key, ForeignKey("models.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", Double, nullable=False),
    # A state that was entered, or what was done about it.
    Column("kind", String(32), nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", _Json, nullable=False),
    Index("ix_monitoring_events_model_id_id", "model_id", "id"),
)

captures = Table(
    "captures",
    METADATA,
    Column("id", _Key, primary_key=True),
    Column("model_id", _Key, ForeignKey("models.id"), nullable=False),
    # Of the file in the blob store.
    Column("digest", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # When the first and the last of its predictions were made.
    Column("first_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    Index("ix_captures_model_id_last_at", "model_id", "last_at"),
)

candidates = Table(
    "candidates",
    METADATA,
    Column("model_id", _Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # The version that it is compared with.
    Column("champion", Integer, nullable=False),
    # Counts what has been written here: whoever has read an older turn writes nothing.
    Column("turn", BigInteger, nullable=False),
    Column("began_at", Double, nullable=False),
    # Predictions before this have been compared, or were fitted on.
    Column("through", Double, nullable=False),
    # Of the comparison, as `recalib.drift.ScoreTest` has them.
    Column("alpha", Double, nullable=False),
    Column("state", _Json, nullable=False),
    # Null while it is compared.
    Column("verdict", String(16)),
    Column("ended_at", Double),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
    # At most one at a time.
    Index(
        "uq_candidates_undecided_model_id",
        "model_id",
        unique=True,
        sqlite_where=text("verdict IS NULL"),
        postgresql_where=text("verdict IS NULL"),
    ),
)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", _Key, primary_key=True),
    # Of a revoked key as well: in the audit trail, a name is one key's.
    Column("name", _Name, nullable=False, unique=True),
    # SHA-256 of the secret, which is nowhere.
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("scopes", _Json, nullable=False),
    # Names of models; null for all.
    Column("models", _Json),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    # Those of `recalib.access.Limits` that are the key's own; null where none is.
    Column("limits", _Json),
)

audit = Table(
    "audit",
    METADATA,
    Column("id", _Key, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("actor", Text, nullable=False),
    Column("action", String(64), nullable=False),
    # A name and no key: what was done outlives whom it was done to.
    Column("model", _Name),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("result", String(16), nullable=False),
    Index("ix_audit_actor_id", "actor", "id"),
    Index("ix_audit_model_id", "model", "id"),
)
