"""What the registry returns: frozen records without a connection behind them.

Times are seconds since 1970-01-01 UTC by the database's clock, as doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from recalib.registry.monitoring_settings import MonitoringConfig

__all__ = [
    "Alias",
    "AliasChange",
    "AuditEntry",
    "CalibratorVersion",
    "Candidate",
    "Capture",
    "CohortRow",
    "Dataset",
    "ExpectedVersion",
    "InputKind",
    "Job",
    "JobState",
    "LabelledPrediction",
    "Lease",
    "Model",
    "MonitorRow",
    "MonitoringEvent",
    "Serving",
    "StoredResponse",
]

InputKind = Literal["logits", "probabilities"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True)
class Model:
    """A classifier to be calibrated."""

    id: int
    name: str
    classes: int
    labels: tuple[str, ...] | None
    #: The newest version published for it, 0 before the first.
    latest_version: int
    created_by: str
    created_at: float
    #: What of it is watched, and how.
    monitoring: MonitoringConfig


@dataclass(frozen=True)
class Dataset:
    """Validation logits with labels, stored as the blob `digest`."""

    model: str
    name: str
    digest: str
    rows: int
    classes: int
    size_bytes: int
    media_type: str
    input: InputKind
    #: The uncalibrated metrics.
    metrics: dict[str, Any]
    created_at: float


@dataclass(frozen=True)
class CalibratorVersion:
    """A published calibrator; its parameters are fetched apart, they may be large."""

    model: str
    version: int
    card: dict[str, Any]
    dataset: str | None
    job_id: str
    created_at: float


@dataclass(frozen=True)
class Alias:
    """A name that points at a version, and who pointed it there last."""

    model: str
    alias: str
    version: int
    #: The revision that this change brought: see `Aliases.revision`.
    revision: int
    actor: str
    reason: str
    changed_at: float


@dataclass(frozen=True)
class Serving:
    """What serves under an alias or a version of a model, all as of one moment."""

    model: Model
    #: None where the model has no such alias or version; so is the content then.
    version: int | None
    parameters: bytes | None
    #: Of the change that pointed the alias there; 0 for a version, which never changes.
    revision: int
    #: The newest of any alias, of any model.
    newest_revision: int


@dataclass(frozen=True)
class ExpectedVersion:
    """Where an alias is believed to point: a version, or None for an alias that is not set.

    Given to whoever moves it, so that a decision made about one champion does not fall on another.
    """

    version: int | None


@dataclass(frozen=True)
class AliasChange:
    """One entry of the audit trail of an alias."""

    revision: int
    model: str
    alias: str
    from_version: int | None
    to_version: int
    actor: str
    reason: str
    changed_at: float


@dataclass(frozen=True)
class Job:
    """Work to be done by some worker."""

    id: str
    kind: str
    state: JobState
    model: str | None
    payload: dict[str, Any]
    #: What the running handler last told about itself.
    progress: dict[str, Any] | None
    #: What an attempt left for the next one to go on from.
    checkpoint: dict[str, Any] | None
    result: dict[str, Any] | None
    error: str | None
    attempts: int
    max_attempts: int
    priority: int
    cancel_requested: bool
    #: Who runs it, or ran it last.
    worker: str | None
    created_at: float
    #: When its first attempt began.
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True)
class Lease:
    """The right to work on a job until it expires or passes on.

    `fence` grows with each claim of the job; whoever shows an older one is refused.
    """

    job: Job
    fence: int
    #: The `traceparent` of what asked for the job, or None.
    trace: str | None = None


@dataclass(frozen=True)
class LabelledPrediction:
    """A prediction whose label has come."""

    version: int
    #: By the clock of the server that made it.
    predicted_at: float
    #: Which prediction it is: see `recalib.prediction_ids`.
    digest: bytes
    #: Both of the predicted class.
    raw_confidence: float
    confidence: float
    predicted: int
    #: The first that came.
    label: int
    #: Whether another one came for it too.
    disputed: bool
    labelled_at: float
    #: See `recalib.registry.monitoring_settings`; 0 for none.
    segment: int = 0


@dataclass(frozen=True)
class MonitorRow:
    """What is known of how one version holds up."""

    version: int
    #: Which of the model's tests this is, from 1.
    number: int
    #: Counts what has been written: see `Monitors.save`.
    turn: int
    #: Options of the test, which cannot change while it goes on.
    options: dict[str, Any]
    #: Predictions before this time have been looked at.
    through: float
    #: What `recalib.drift.Monitor` knows, what it last said, and the sums of all cohorts.
    state: dict[str, Any]
    status: dict[str, Any]
    totals: dict[str, Any]
    #: Labels that came too late to count, before or after their predictions were looked at.
    late: int
    assessed_at: float


@dataclass(frozen=True)
class CohortRow:
    """The sums of what was predicted in some stretch of time, of one segment; 0 for the rest."""

    started_at: float
    ended_at: float
    segment: int
    sums: dict[str, Any]


@dataclass(frozen=True)
class MonitoringEvent:
    """One entry of a model's monitoring audit trail."""

    id: int
    version: int
    at: float
    kind: str
    actor: str
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Capture:
    """A file of logits in the blob store."""

    digest: str
    rows: int
    size_bytes: int
    #: When the first and the last of its predictions were made.
    first_at: float
    last_at: float


@dataclass(frozen=True)
class Candidate:
    """A version that is compared with the champion on the same predictions."""

    version: int
    #: The version that it is compared with.
    champion: int
    #: Counts what has been written: see `Candidates.save`.
    turn: int
    began_at: float
    #: Predictions before this have been compared, or were fitted on.
    through: float
    #: Of the comparison, as `recalib.drift.ScoreTest` has them.
    alpha: float
    state: dict[str, Any]
    #: `promoted`, `dropped` or `proven`, which waits for somebody to promote it; None before.
    verdict: str | None
    ended_at: float | None


@dataclass(frozen=True)
class StoredResponse:
    """What was answered to the first request with an idempotency key."""

    fingerprint: str
    status: int
    body: bytes
    created_at: float


@dataclass(frozen=True)
class AuditEntry:
    """One thing that somebody did, or was refused."""

    id: int
    at: float
    #: A key's name, `oidc:SUBJECT`, `cli:USER`, or what did it by itself.
    actor: str
    action: str
    model: str | None
    target: str
    detail: str
    #: `done` or `refused`.
    result: str
