"""What the server answers, typed; times are in UTC, metrics are fractions.

Fields that a newer server adds are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Alias",
    "AliasChange",
    "AuditEntry",
    "Calibrator",
    "Candidate",
    "Dataset",
    "Estimate",
    "Items",
    "Job",
    "JobProgress",
    "LabelOutcome",
    "Labelled",
    "Likeliest",
    "Model",
    "Monitoring",
    "MonitoringEvent",
    "MonitoringWindow",
    "Page",
    "Predictions",
    "Readiness",
    "SegmentState",
]

T = TypeVar("T")


class Model(msgspec.Struct, frozen=True):
    """A registered classifier of `classes` classes, with their names where they were given.

    `monitoring` is what of it is watched, and how.
    """

    name: str
    classes: int
    labels: tuple[str, ...] | None
    created_at: datetime
    monitoring: dict[str, Any] = {}


class Estimate(msgspec.Struct, frozen=True):
    """A metric's value, and where there is one its 95% interval and its noise floor."""

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None


class Dataset(msgspec.Struct, frozen=True):
    """Uploaded logits with labels: `rows` of `classes`; `metrics` are of the model as it is.

    `digest` is the SHA-256 of the uploaded bytes, in hexadecimal.
    """

    name: str
    model: str
    rows: int
    classes: int
    digest: str
    size_bytes: int
    input: str
    metrics: dict[str, Estimate]
    created_at: datetime


class Calibrator(msgspec.Struct, frozen=True):
    """A fitted calibrator; `card` says what it is, and how its fit went."""

    model: str
    version: int
    dataset: str | None
    job: str | None
    created_at: datetime
    card: dict[str, Any]


class Alias(msgspec.Struct, frozen=True):
    """A name that points to a version; `champion` is what serves by default."""

    alias: str
    model: str
    version: int
    updated_at: datetime


class AliasChange(msgspec.Struct, frozen=True):
    """One entry of an alias' audit trail."""

    at: datetime
    actor: str
    from_version: int | None
    to_version: int
    reason: str


class AuditEntry(msgspec.Struct, frozen=True):
    """One thing that somebody did, or was refused."""

    id: int
    at: datetime
    #: A key's name, `oidc:SUBJECT`, `cli:USER`, or what did it by itself.
    actor: str
    action: str
    model: str | None
    target: str
    detail: str
    result: str


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is, from 0 to 1, and what it is at."""

    fraction: float
    message: str


class Job(msgspec.Struct, frozen=True):
    """Work that is done elsewhere; `result` of a fit names the `version`, and if it `promoted`.

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
        """Whether nothing more will happen to it."""
        return self.state in ("succeeded", "failed", "cancelled")


class LabelOutcome(msgspec.Struct, frozen=True):
    """What became of one label, and why where it was not taken.

    `status` is one of accepted, duplicate (the same came before), conflict (another came before,
    and stands), expired, invalid.
    """

    status: str
    reason: str = ""


class Labelled(msgspec.Struct, frozen=True):
    """What became of labels: one of `items` for each, in their order; `counts` by status."""

    counts: dict[str, int]
    items: list[LabelOutcome]


class SegmentState(msgspec.Struct, frozen=True):
    """How a segment holds up; `(rest)` is what is of none."""

    segment: str
    state: str
    reason: str
    evidence: dict[str, Any]


class MonitoringWindow(msgspec.Struct, frozen=True):
    """What the labels of predictions from `start` until `end` say."""

    start: datetime
    end: datetime
    measured: dict[str, Any]


class MonitoringEvent(msgspec.Struct, frozen=True):
    """A state that was entered, or what was done about it."""

    at: datetime
    version: int
    kind: str
    actor: str
    reason: str
    evidence: dict[str, Any]


class Candidate(msgspec.Struct, frozen=True):
    """A version that is compared with the champion, or was the last to be.

    `verdict` is None while it is compared; then promoted, dropped, or proven, which waits for
    somebody to promote it.
    """

    version: int
    verdict: str | None
    began_at: datetime
    evidence: dict[str, Any]


class Monitoring(msgspec.Struct, frozen=True):
    """How a model's champion, `version`, holds up.

    `state` is one of fresh, unverified, suspect, stale; `reason` says why in one sentence, and
    `evidence` in numbers. Predictions from `onset` on speak against it.
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


class Readiness(msgspec.Struct, frozen=True):
    """Whether requests can be served; without the registry, those for what is `loaded` can."""

    ready: bool
    registry: str
    loaded: int
    detail: str


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated probabilities, float32 (N, K), and ids (N,), None for a row without."""

    probabilities: NDArray[np.float32]
    prediction_ids: list[str | None]


@dataclass(frozen=True, eq=False)
class Likeliest:
    """The likeliest classes of rows, the likeliest first, and their probabilities, (N, k) both.

    Of classes that are exactly alike, the one with the lower number comes first.
    """

    classes: NDArray[np.int64]
    probabilities: NDArray[np.float32]


class Items(msgspec.Struct, Generic[T], frozen=True):
    """A whole list."""

    items: list[T]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, and where the next part begins."""

    items: list[T]
    next_cursor: str | None
