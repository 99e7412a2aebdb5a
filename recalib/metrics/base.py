"""What a metric promises.

A metric reads `Predictions` and returns an `Estimate`: a number, and where one is asked for and
known, an interval. Metrics that are functions of sums have a `State` besides: of constant size,
fed batch by batch, and mergeable, so that chunks of a file, processes and days add up to what one
pass over everything would give. Sums over rows are float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

from recalib.metrics.predictions import Predictions

__all__ = ["Estimate", "Metric", "State", "StreamingMetric"]


@dataclass(frozen=True)
class Estimate:
    """A metric's value, and where known: its interval, and what it would be if nothing were wrong.

    `floor` is the mean, and `floor_high` the 95th percentile, of what a perfectly calibrated model
    with as many rows of these confidences shows: a calibration error under it is no news.
    """

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    floor_high: float | None = None


class State(ABC):
    """Sums that grow with neither rows nor time."""

    @abstractmethod
    def add(self, predictions: Predictions) -> None:
        """Add a batch."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add what another state of the same shape has seen; no row must be in both."""


class Metric(ABC):
    """A function of predictions and labels."""

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Whether it costs so much that it is measured only when asked for by name.
    on_request: ClassVar[bool] = False

    @abstractmethod
    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        """Return the metric; with an interval of confidence `level` where it has one.

        An interval covers the value that infinitely many rows of the same kind would give.
        """


S = TypeVar("S", bound=State)


class StreamingMetric(Metric, Generic[S]):
    """A metric that is a function of a state.

    Metrics of the same `state_kind` can share one state: `ece` and `mce` read the same sums.
    """

    state_kind: ClassVar[str]

    @abstractmethod
    def state(self, classes: int) -> S:
        """Return an empty state for K = `classes`."""

    @abstractmethod
    def estimate(self, state: S, level: float | None = None) -> Estimate:
        """Return the metric of all that `state` has seen, which is at least one row."""

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        state = self.state(predictions.classes)
        state.add(predictions)
        return self.estimate(state, level)
