"""Records that the registry returns: frozen, without a database connection.

What has all that its resource has is returned as the resource (`recalib.contract`): events,
webhooks, deliveries, audit entries. Times of records are seconds since 1970-01-01 UTC by the
database's clock, as doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from recalib.contract.events import Event, Webhook
from recalib.contract.jobs import JobState
from recalib.contract.models import Task
from recalib.core.card import PredictionPolicy
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.retention_settings import RetentionSettings
from recalib.errors import InputError

InputKind = Literal["logits", "probabilities"]


@dataclass(frozen=True)
class Model:
    """A classifier with calibrators."""

    id: int
    name: str
    classes: int
    labels: tuple[str, ...] | None
    #: The newest published version, 0 before the first.
    latest_version: int
    created_by: str
    created_at: float
    #: Its monitoring settings.
    monitoring: MonitoringSettings
    #: `multilabel`: each of the K labels has its own probability.
    task: Task = "multiclass"
    description: str = ""
    tags: tuple[str, ...] = ()
    #: How long its resources are kept.
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    #: Which predictions the fits of `auto` and automatic refits may change. None for a multilabel
    #: model, and for a model of before: fits keep the predicted class, refits what the champion's
    #: map keeps.
    predictions: PredictionPolicy | None = None
    #: Whether it answers with `identity` while it has no champion.
    serve_uncalibrated: bool = True

    @property
    def is_multilabel(self) -> bool:
        """Whether rows have any number of labels, each with its own probability."""
        return self.task == "multilabel"

    def check_multiclass(self, operation: str) -> None:
        """Raise `InputError` if the model is multilabel, since `operation` needs a class a row."""
        if self.is_multilabel:
            found = f"multilabel, the task of model {self.name!r}"
            raise InputError("task", found=found, accepted=f"multiclass for {operation}")


@dataclass(frozen=True)
class Dataset:
    """Validation logits with labels, in the blob `digest` or in the files that it lists."""

    model: str
    name: str
    digest: str
    rows: int
    classes: int
    size_bytes: int
    media_type: str
    input: InputKind
    #: The uncalibrated metrics; empty if only the headers of referenced files were read.
    metrics: dict[str, Any]
    created_at: float
    description: str = ""
    tags: tuple[str, ...] = ()
    #: Of a data set by reference, whose blob is a manifest (`recalib.references`).
    uri: str | None = None

    @property
    def has_unchecked_rows(self) -> bool:
        """Whether only the headers of referenced files were read."""
        return self.uri is not None and not self.metrics


@dataclass(frozen=True)
class CalibratorVersion:
    """A published calibrator, without its parameters, which may be large."""

    model: str
    version: int
    card: dict[str, Any]
    dataset: str | None
    job_id: str
    created_at: float
    description: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alias:
    """A name that points at a version, with its last change."""

    model: str
    alias: str
    version: int
    #: The revision of this change: see `Aliases.revision`.
    revision: int
    actor: str
    reason: str
    changed_at: float


@dataclass(frozen=True)
class Serving:
    """The version behind an alias or version number of a model, from one snapshot."""

    model: Model
    #: None if the model has no such alias or version; `parameters` is then None too.
    version: int | None
    parameters: bytes | None
    #: The revision of the alias; 0 for a version number, which never changes.
    revision: int
    #: The newest revision of all aliases of all models.
    newest_revision: int


@dataclass(frozen=True)
class ExpectedVersion:
    """The version that an alias must point at before a change; None for an alias that is not set.

    It prevents that a decision about one champion is applied to another.
    """

    version: int | None


@dataclass(frozen=True)
class AliasChange:
    """One entry of the audit trail of an alias."""

    revision: int
    model: str
    alias: str
    from_version: int | None
    #: None if the alias was deleted.
    to_version: int | None
    actor: str
    reason: str
    changed_at: float


@dataclass(frozen=True)
class Job:
    """A job of the queue."""

    #: The order of arrival.
    sequence: int
    id: str
    kind: str
    state: JobState
    model: str | None
    payload: dict[str, Any]
    #: The last progress of the running handler.
    progress: dict[str, Any] | None
    #: The checkpoint from which the next attempt resumes.
    checkpoint: dict[str, Any] | None
    result: dict[str, Any] | None
    error: str | None
    attempts: int
    max_attempts: int
    priority: int
    cancel_requested: bool
    #: The current or last worker.
    worker: str | None
    created_at: float
    #: Start of the first attempt.
    started_at: float | None
    finished_at: float | None
    #: The key or token that requested it; empty if the server requested it itself.
    owner: str = ""


@dataclass(frozen=True)
class Lease:
    """The exclusive right to work on a job for a limited time.

    `fence` is the fencing token: it grows with each claim, and writes with an older token fail.
    """

    job: Job
    fence: int
    #: The `traceparent` of the request that created the job, or None.
    trace: str | None = None


@dataclass(frozen=True)
class MonitorRow:
    """The monitor of one version."""

    version: int
    #: The number of the test of the model, from 1.
    number: int
    #: Counts the writes: see `Monitors.save`.
    turn: int
    #: Options of the test; they are fixed while it runs.
    options: dict[str, Any]
    #: Predictions before this time are assessed.
    through: float
    #: State of `recalib.drift.Monitor`, empty if it was not read; its last status, and the sums of
    #: all cohorts.
    state: dict[str, Any]
    status: dict[str, Any]
    totals: dict[str, Any]
    #: Number of labels that arrived too late to count.
    late: int
    assessed_at: float
    #: Predictions before this time come from a log of the past; None without a replay.
    replayed_through: float | None = None
    #: See `recalib.shift.Shadow`; None without adaptation. `Monitors.adapt` alone writes it.
    adaptation: dict[str, Any] | None = None


@dataclass(frozen=True)
class CohortRow:
    """The sums of a cohort of one segment; segment 0 is the rest."""

    started_at: float
    ended_at: float
    segment: int
    sums: dict[str, Any]
    #: Whether it comes from a log of the past.
    replayed: bool = False


@dataclass(frozen=True)
class Assessment:
    """The state of a version after a cohort of predictions."""

    version: int
    started_at: float
    ended_at: float
    assessed_at: float
    state: str
    reason: str
    evidence: dict[str, Any]
    #: Whether it comes from a log of the past.
    replayed: bool = False


@dataclass(frozen=True)
class DueDelivery:
    """An event to be sent now, and how often it was sent without success."""

    event: Event
    attempts: int

    @classmethod
    def of(cls, *, attempts: int, **event: Any) -> DueDelivery:
        """Return the record of the columns of an event and `attempts`."""
        return cls(Event(**event), attempts)


@dataclass(frozen=True)
class WebhookLease:
    """A webhook that a worker has claimed, with its deliveries.

    `secrets` sign its messages: the present one first, then those that have not ended.
    """

    webhook: Webhook
    secrets: list[bytes]
    fence: int
    due: list[DueDelivery]


@dataclass(frozen=True)
class Capture:
    """A file of logits in the blob store."""

    digest: str
    rows: int
    size_bytes: int
    #: Times of the first and the last prediction.
    first_at: float
    last_at: float


@dataclass(frozen=True)
class Challenger:
    """A version that is compared with the champion on the same predictions."""

    version: int
    #: The version that it is compared with.
    champion: int
    #: Counts the writes: see `Candidates.save`.
    turn: int
    began_at: float
    #: Predictions before this time are compared, or were used for the fit.
    through: float
    #: α and state of the `recalib.drift.ScoreTest`.
    alpha: float
    state: dict[str, Any]
    #: `promoted`, `dropped` or `proven` (waits for promotion); None during the comparison.
    verdict: str | None
    ended_at: float | None


@dataclass(frozen=True)
class StoredResponse:
    """The response to the first request with an idempotency key."""

    fingerprint: str
    status: int
    body: bytes
    created_at: float
