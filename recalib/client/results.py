"""Results of the client. Times are in UTC, metrics are fractions.

Unknown fields of a newer server are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Model(msgspec.Struct, frozen=True):
    """A classifier; `classes` is the number of classes, `labels` are their names or None.

    `monitoring` has the monitoring settings. `task` is `multiclass` or `multilabel`.
    """

    name: str
    classes: int
    labels: tuple[str, ...] | None
    created_at: datetime
    monitoring: dict[str, Any] = {}
    #: After a change of the settings: why the champion cannot stay fresh under them.
    warnings: tuple[str, ...] = ()
    task: str = "multiclass"
    description: str = ""
    tags: tuple[str, ...] = ()
    #: How long resources are kept, in seconds; None is for ever.
    retention: dict[str, float | None] = {}
    #: Which predictions fits and refits may change; None for a multilabel model or one of before.
    predictions: str | None = None


class Estimate(msgspec.Struct, frozen=True):
    """The value of a metric, with its 95% interval and noise floor if they are known."""

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None


class Dataset(msgspec.Struct, frozen=True):
    """Logits with labels: `rows` of `classes`; `metrics` are those before calibration.

    `digest` is the SHA-256 of the uploaded bytes, in hexadecimal. `media_type` is the content type
    of the file. A data set by reference has a `uri`, and the digest of the list of its files.
    """

    name: str
    model: str
    rows: int
    classes: int
    digest: str
    size_bytes: int
    media_type: str
    input: str
    metrics: dict[str, Estimate]
    created_at: datetime
    description: str = ""
    tags: tuple[str, ...] = ()
    uri: str | None = None


class Deletion(msgspec.Struct, frozen=True):
    """A deletion; the content is erased after `erased_after`."""

    deleted_at: datetime
    erased_after: datetime


class Calibrator(msgspec.Struct, frozen=True):
    """A fitted calibrator; `card` describes it and its fit."""

    model: str
    version: int
    dataset: str | None
    job: str | None
    created_at: datetime
    card: dict[str, Any]
    description: str = ""
    tags: tuple[str, ...] = ()


class Alias(msgspec.Struct, frozen=True):
    """A name for a version; `champion` serves by default."""

    alias: str
    model: str
    version: int
    updated_at: datetime
    #: After a promotion: why the version cannot stay fresh under the monitoring settings.
    warnings: tuple[str, ...] = ()


class AliasChange(msgspec.Struct, frozen=True):
    """A change of an alias."""

    at: datetime
    actor: str
    from_version: int | None
    #: None if the alias was deleted.
    to_version: int | None
    reason: str


class AuditEntry(msgspec.Struct, frozen=True):
    """An entry of the audit trail: an operation, done or refused."""

    id: int
    at: datetime
    #: A key's name, `oidc:SUBJECT`, `cli:USER`, or the component that acted automatically.
    actor: str
    action: str
    model: str | None
    target: str
    detail: str
    result: str


class Event(msgspec.Struct, frozen=True):
    """A change: `type` is a thing and a verb, such as `job.failed`; `data` has the details.

    Later events have larger ids. The type `gap` reports that the server no longer holds all events
    after the id `data["after"]`, only those from `data["first"]`.
    """

    id: int
    at: datetime
    type: str
    model: str | None
    data: dict[str, Any]


class Webhook(msgspec.Struct, frozen=True):
    """A receiver of events; `reason` is why it is disabled.

    `secret` signs messages; only `create_webhook` and `rotate_webhook_secret` return it. Previous
    secrets sign them too, the last of them until `previous_secrets_until`.
    """

    id: str
    url: str
    model: str | None
    types: tuple[str, ...]
    format: str
    enabled: bool
    reason: str
    created_by: str
    created_at: datetime
    secret: str | None = None
    previous_secrets_until: datetime | None = None


class Delivery(msgspec.Struct, frozen=True):
    """An event that a webhook gets; `state` is pending, delivered or dead.

    `status` is the HTTP status of the last answer, `error` the reason of the last failure.
    """

    event_id: int
    type: str | None
    state: str
    attempts: int
    created_at: datetime
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    status: int | None
    error: str


class JobProgress(msgspec.Struct, frozen=True):
    """The progress of a job, from 0 to 1, and its current activity."""

    fraction: float
    message: str


class Job(msgspec.Struct, frozen=True):
    """A job on the server. The `result` of a fit has the `version` and whether it is `promoted`.

    `state` is one of queued, running, succeeded, failed, cancelled.
    """

    id: str
    kind: str
    state: str
    model: str | None
    progress: JobProgress | None
    result: dict[str, Any] | None
    error: str | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")


class Batch(msgspec.Struct, frozen=True):
    """A file that a job calibrates by a version of a model; `id` is that of the job.

    `dataset` is None for uploaded rows. `format` is that of the result. `state` is that of a `Job`.
    `digest`, the SHA-256 of the result in hexadecimal, and `size_bytes` are None until the job has
    succeeded.
    """

    id: str
    model: str
    version: int
    dataset: str | None
    input: str
    format: str
    rows: int
    state: str
    progress: JobProgress | None
    error: str | None
    digest: str | None
    size_bytes: int | None
    created_at: datetime
    finished_at: datetime | None


class Change(msgspec.Struct, frozen=True):
    """The difference of a metric between two versions on the same rows, with its 95% interval.

    `verdict` is better, worse, unclear (the interval holds 0), equal, or none for a metric that is
    good neither high nor low.
    """

    value: float
    low: float
    high: float
    verdict: str


class LabelResult(msgspec.Struct, frozen=True):
    """The metrics of one label of a multilabel model, and their changes from the first version."""

    label: str
    metrics: dict[str, Estimate]
    changes: dict[str, Change]


class VersionResult(msgspec.Struct, frozen=True):
    """The metrics of a version on a data set, and their `changes` from the first version.

    `version` is a number as text, or `identity`. `fitted_rows` is how many of the rows it was
    fitted on, None if that is not known: on these rows, the metrics are not evidence. Of a
    multilabel model, they are means over labels, and `labels` has each label; it is empty in lists.
    """

    version: str
    fitted_rows: int | None
    metrics: dict[str, Estimate]
    changes: dict[str, Change]
    labels: list[LabelResult] = []


class EvaluationPicture(msgspec.Struct, frozen=True):
    """A picture of one version, or of the first and another, as a Vega-Lite specification."""

    title: str
    caption: str
    versions: list[str]
    specification: dict[str, Any]


class Evaluation(msgspec.Struct, frozen=True):
    """Versions of a model, measured on a data set; `id` is that of the job.

    `state` is that of a `Job`. Until the job has succeeded, `rows` is None and `results` is empty.
    `pictures` is empty in lists.
    """

    id: str
    model: str
    dataset: str
    versions: list[str]
    state: str
    progress: JobProgress | None
    error: str | None
    rows: int | None
    results: list[VersionResult]
    warnings: list[str]
    pictures: list[EvaluationPicture]
    created_at: datetime
    finished_at: datetime | None


class LabelOutcome(msgspec.Struct, frozen=True):
    """The outcome of one label, with the reason if it was not accepted.

    `status` is accepted, duplicate (the same label exists), conflict (another label exists, and
    stays), expired or invalid.
    """

    status: str
    reason: str = ""


class Labelled(msgspec.Struct, frozen=True):
    """The outcomes of labels: `items` in their order, and `counts` by status."""

    counts: dict[str, int]
    items: list[LabelOutcome]


class CountedTraffic(msgspec.Struct, frozen=True):
    """Numbers of predictions: those that were counted, and those that came too late."""

    accepted: int
    expired: int


class SegmentState(msgspec.Struct, frozen=True):
    """The monitoring state of a segment; `(rest)` has the predictions without a segment."""

    segment: str
    state: str
    reason: str
    evidence: dict[str, Any]
    may_be_selection: bool = False


class MonitoringWindow(msgspec.Struct, frozen=True):
    """The metrics of predictions from `start` to `end`."""

    start: datetime
    end: datetime
    measured: dict[str, Any]
    #: Whether they come from a log of the past.
    replayed: bool = False


class MonitoringEvent(msgspec.Struct, frozen=True):
    """A change of state, or a reaction to it; `replayed` if it comes from a log of the past."""

    at: datetime
    version: int
    kind: str
    actor: str
    reason: str
    evidence: dict[str, Any]
    replayed: bool = False


class Candidate(msgspec.Struct, frozen=True):
    """The version that is compared with the champion, or was compared last.

    `verdict` is None during the comparison. Afterwards it is promoted, dropped, or proven, which
    means that the version can be promoted.
    """

    version: int
    verdict: str | None
    began_at: datetime
    evidence: dict[str, Any]


class MonitoringEntry(msgspec.Struct, frozen=True):
    """The state of a version after the cohort of predictions from `start` to `end`.

    `replayed` is whether they come from a log of the past.
    """

    version: int
    start: datetime
    end: datetime
    assessed_at: datetime
    state: str
    reason: str
    evidence: dict[str, Any]
    measured: dict[str, Any]
    replayed: bool = False


class Monitoring(msgspec.Struct, frozen=True):
    """The monitoring state of a model's champion, `version`.

    `state` is fresh, unverified, suspect or stale. `reason` explains it in one sentence, `evidence`
    in numbers. `onset` is the estimated start of the drift. `may_be_selection` is whether the
    evidence may come from the selection of labels.
    """

    model: str
    version: int | None
    state: str
    since: datetime | None
    reason: str
    evidence: dict[str, Any]
    onset: datetime | None
    segments: list[SegmentState]
    windows: list[MonitoringWindow]
    late_labels: int
    assessed_at: datetime | None
    events: list[MonitoringEvent]
    candidate: Candidate | None = None
    captured_rows: int = 0
    may_be_selection: bool = False
    #: Why the champion cannot stay fresh under the settings, and what to do.
    warnings: tuple[str, ...] = ()
    #: Evidence of the watched classes, None without any.
    classes: dict[str, Any] | None = None
    #: Predictions before this time come from a log of the past; None without one.
    replayed_through: datetime | None = None


class Readiness(msgspec.Struct, frozen=True):
    """Whether a server is ready. Without the registry, only `loaded` calibrators can serve."""

    ready: bool
    registry: str
    loaded: int
    detail: str


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated probabilities, float32 (N, K), and ids (N,), None for a row without an id."""

    probabilities: NDArray[np.float32]
    prediction_ids: list[str | None]


@dataclass(frozen=True, eq=False)
class Likeliest:
    """The most likely classes of each row, in descending order, and their probabilities, (N, k).

    Classes of equal probability are in the order of their indices.
    """

    classes: NDArray[np.int64]
    probabilities: NDArray[np.float32]


class Items(msgspec.Struct, Generic[T], frozen=True):
    """A complete list."""

    items: list[T]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next page."""

    items: list[T]
    next_cursor: str | None
    #: Of events: set if earlier events are no longer held.
    gap: T | None = None
