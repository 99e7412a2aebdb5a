"""The tables of monitoring: labels, traffic, monitors, captured logits and candidates."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    false,
    text,
)

from recalib.registry.tables import METADATA, Json, Key

labels = Table(
    "labels",
    METADATA,
    # No foreign keys: the signature of the id proves both, and the database would check each of
    # the ten thousand rows of a batch.
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Time of the prediction. The digest alone is unique; with these columns before it, labels of
    # one time are stored together, which speeds up inserts and reads of cohorts.
    Column("predicted_at", Double, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, primary_key=True),
    Column("raw_confidence", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("predicted", Integer, nullable=False),
    Column("label", Integer, nullable=False),
    # Whether a different label was sent later and refused.
    Column("disputed", Boolean, nullable=False),
    Column("labelled_at", Double, nullable=False),
    # Position in the model's list of segments, from 1; 0 for none.
    Column("segment", Integer, nullable=False, server_default="0"),
    # All labels of a multilabel row, a bit for each (`numpy.packbits`), if logits are captured for
    # refits; null otherwise. Its `label` is about the drawn label only.
    Column("label_set", LargeBinary),
    # Of dependent rows (`recalib.core.group_numbers`); 0 for none.
    Column("group_number", BigInteger, nullable=False, server_default="0"),
    # Number of the state in `adaptations` that adapted the answer; 0 for none.
    Column("adaptation", BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

adaptations = Table(
    "adaptations",
    METADATA,
    # No foreign keys, as above. A number never changes its meaning.
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # Time from which on it adapts answers.
    Column("since", Double, nullable=False),
    # `recalib.shift.ShadowState`, which has a number for each class: large values are last.
    Column("state", Json, nullable=False),
)

traffic = Table(
    "traffic",
    METADATA,
    # No foreign keys, as above. One row per bin and time bucket, for any number of requests.
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Start of the bucket, in seconds since 1970.
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("bin", Integer, primary_key=True, autoincrement=False),
    Column("predictions", BigInteger, nullable=False),
    # The sum of the confidences of these predictions, and how many are in it: servers of earlier
    # versions, which may run beside this one, only count predictions.
    Column("confidence_count", BigInteger, nullable=False, server_default="0"),
    Column("confidence_sum", Double, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

class_traffic = Table(
    "class_traffic",
    METADATA,
    # No foreign keys, as above. One row per watched class that was predicted, and time bucket.
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Start of the bucket, in seconds since 1970.
    Column("started_at", BigInteger, primary_key=True, autoincrement=False),
    Column("predicted", Integer, primary_key=True, autoincrement=False),
    Column("predictions", BigInteger, nullable=False),
    # The sum of max(p, 1 - p) over their confidences p.
    Column("max_error_sum", Double, nullable=False),
    sqlite_with_rowid=False,
)

monitors = Table(
    "monitors",
    METADATA,
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # The number of the test of the model, from 1: it determines the test's share of alpha.
    Column("number", Integer, nullable=False),
    # Counts the writes, for optimistic locking.
    Column("turn", BigInteger, nullable=False),
    # Options of the test; they are fixed while it runs.
    Column("options", Json, nullable=False),
    # Predictions before this time are assessed.
    Column("through", Double, nullable=False),
    # The last status, and the sums of all cohorts.
    Column("status", Json, nullable=False),
    Column("totals", Json, nullable=False),
    # Number of labels that arrived after the assessment of their predictions.
    Column("late", BigInteger, nullable=False),
    Column("assessed_at", Double, nullable=False),
    # Predictions before this time come from a log of the past; null without a replay.
    Column("replayed_through", Double),
    # `recalib.shift.Shadow`; null without adaptation.
    Column("adaptation", Json),
    # State of `recalib.drift.Monitor`: last, because SQLite reads large values before others.
    Column("state", Json, nullable=False),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
)

cohorts = Table(
    "cohorts",
    METADATA,
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("started_at", Double, primary_key=True, autoincrement=False),
    Column("segment", Integer, primary_key=True, autoincrement=False),
    Column("ended_at", Double, nullable=False),
    # As `recalib.drift.Sums` has them.
    Column("sums", Json, nullable=False),
    # Whether it comes from a log of the past.
    Column("replayed", Boolean, nullable=False, server_default=false()),
)

assessments = Table(
    "assessments",
    METADATA,
    Column("model_id", Key, primary_key=True, autoincrement=False),
    # The time comes before the version: a history has all versions, in the order of time.
    Column("started_at", Double, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("ended_at", Double, nullable=False),
    Column("assessed_at", Double, nullable=False),
    # The state, its reason and the evidence after this cohort.
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Json, nullable=False),
    # Whether it comes from a log of the past.
    Column("replayed", Boolean, nullable=False, server_default=false()),
)

monitoring_events = Table(
    "monitoring_events",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("model_id", Key, ForeignKey("models.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", Double, nullable=False),
    # A new state, or an action.
    Column("kind", String(32), nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Json, nullable=False),
    # Whether it comes from a log of the past.
    Column("replayed", Boolean, nullable=False, server_default=false()),
    Index("ix_monitoring_events_model_id_id", "model_id", "id"),
)

captures = Table(
    "captures",
    METADATA,
    Column("id", Key, primary_key=True),
    Column("model_id", Key, ForeignKey("models.id"), nullable=False),
    # The blob of the file.
    Column("digest", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # Times of the first and the last prediction.
    Column("first_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    Index("ix_captures_model_id_last_at", "model_id", "last_at"),
)

candidates = Table(
    "candidates",
    METADATA,
    Column("model_id", Key, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # The version in comparison.
    Column("champion", Integer, nullable=False),
    # Counts the writes, for optimistic locking.
    Column("turn", BigInteger, nullable=False),
    Column("began_at", Double, nullable=False),
    # Predictions before this time are compared, or were used for the fit.
    Column("through", Double, nullable=False),
    # α and state of the `recalib.drift.ScoreTest`.
    Column("alpha", Double, nullable=False),
    Column("state", Json, nullable=False),
    # Null during the comparison.
    Column("verdict", String(16)),
    Column("ended_at", Double),
    ForeignKeyConstraint(["model_id", "version"], ["calibrators.model_id", "calibrators.version"]),
    # At most one undecided candidate per model.
    Index(
        "uq_candidates_undecided_model_id",
        "model_id",
        unique=True,
        sqlite_where=text("verdict IS NULL"),
        postgresql_where=text("verdict IS NULL"),
    ),
)
