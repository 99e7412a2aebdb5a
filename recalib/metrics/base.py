"""The contract of a metric.

A metric reads `Predictions` and returns an `Estimate`: a number and, on request, an interval.
A metric that is a function of sums is a `StreamingMetric`: it also has a `State` of constant size.
A state takes batches and merges with other states, so the states of chunks, processes and days
add up to the state of one pass over all rows. Sums over rows are float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics.predictions import Predictions

#: What a metric's value counts: `fraction`, which tables show as a percentage; `nats`; or `score`,
#: a number without a unit.
Unit = Literal["fraction", "nats", "score"]
#: Whether a low or a high value of a metric is the better one.
Better = Literal["lower", "higher"]


class UndefinedMetricError(InputError):
    """No row counts for the metric, such as an accuracy of no rows."""


@dataclass(frozen=True)
class Estimate:
    """A metric's value with its interval and its noise floor, where these are known.

    `floor` is the mean of the metric for a perfectly calibrated model with the same number of rows
    and the same confidences; `floor_high` is the 95th percentile. A calibration error below the
    floor shows no miscalibration.
    """

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    floor_high: float | None = None


class State(ABC):
    """Sums of constant size, for any number of rows."""

    #: Names of the attributes that are sums over rows: numbers or arrays. Other attributes do not
    #: depend on rows.
    sums: ClassVar[tuple[str, ...]]

    @abstractmethod
    def add(self, predictions: Predictions) -> None:
        """Add a batch."""

    def merge(self, other: Self) -> Self:
        """Return the state of the rows of both, which must not share rows; neither changes.

        Raises
        ------
        ValueError: the states have different shapes.
        """
        shapes = [[np.shape(getattr(state, name)) for name in self.sums] for state in (self, other)]
        if shapes[0] != shapes[1]:
            raise ValueError("states of different classes or bins cannot be merged")
        merged = copy(self)
        for name in self.sums:
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        return merged

    def __eq__(self, other: object) -> bool:
        """Return whether the sums are equal."""
        if type(self) is not type(other):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.sums)

    __hash__ = None  # type: ignore[assignment]


class WeightedState(State):
    """Sums of weighted rows, of constant size."""

    @abstractmethod
    def add_weighted(self, predictions: Predictions, weights: NDArray[np.float64]) -> None:
        """Add a batch with weights (n,), which are positive."""

    def add(self, predictions: Predictions) -> None:
        self.add_weighted(predictions, np.ones(len(predictions)))


class Metric(ABC):
    """A function of predictions and labels."""

    name: ClassVar[str]
    #: One line for `--help`, reports and `docs/metrics.md`.
    summary: ClassVar[str]
    unit: ClassVar[Unit]
    #: Which value is the better one; None for a metric that only describes.
    better: ClassVar[Better | None] = "lower"
    #: True for an expensive metric, which is computed only when the caller names it.
    on_request: ClassVar[bool] = False

    def __init__(self, bins: int = 15) -> None:
        """Set M, the number of bins; metrics without bins ignore it."""
        self.bins = bins

    @abstractmethod
    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        """Return the metric, with an interval of confidence `level` if it has one.

        The interval is for the value on infinitely many rows from the same distribution.

        Raises
        ------
        UndefinedMetricError: no row counts for the metric.
        """

    def measure_weighted(
        self, predictions: Predictions, weights: NDArray[np.float64], level: float | None = None
    ) -> Estimate:
        """Return the metric of rows with `weights` (N,), which are positive.

        A row with a whole weight w counts like w equal rows. The interval and the floor
        are those of N sampled rows whose weights are known: rows are not counted as repeated. See
        `recalib.metrics.weighted`.
        """
        raise NotImplementedError(self.name)

    @classmethod
    def has_weighted_form(cls) -> bool:
        """Return whether the metric can be measured on weighted rows."""
        return False

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        """Return whether the metric is defined for K = `classes`."""
        return True


S = TypeVar("S", bound=State)


M = TypeVar("M", bound=Metric)


def defined(metrics: Mapping[str, M], estimate: Callable[[M], Estimate]) -> dict[str, Estimate]:
    """Return the estimate of each metric, without those for which no row counts."""
    estimates = {}
    for name, metric in metrics.items():
        with suppress(UndefinedMetricError):
            estimates[name] = estimate(metric)
    return estimates


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
        """Return the metric of the rows in `state`, at least one.

        Raises
        ------
        UndefinedMetricError: as `measure`.
        """

    def error_bound(self, state: S) -> float:
        """Return a bound on |estimate(state).value − measure(rows).value| for the rows in `state`.

        It is 0 for a metric that is a function of its sums; both values then differ by rounding.
        """
        return 0.0

    @property
    def reads_state(self) -> bool:
        """Whether `measure` reads the state alone; a metric that overrides it also reads rows."""
        return type(self).measure is StreamingMetric.measure

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        state = self.state(predictions.classes)
        state.add(predictions)
        return self.estimate(state, level)

    def weighted_state(self, classes: int) -> WeightedState:
        """Return an empty state of weighted rows; a metric without one has no weighted form.

        Metrics of the same `state_kind` can share one.
        """
        raise NotImplementedError(self.name)

    def estimate_weighted(self, state: Any, level: float | None = None) -> Estimate:
        """Return the metric of the rows in a state of `weighted_state`, at least one."""
        raise NotImplementedError(self.name)

    def measure_weighted(
        self, predictions: Predictions, weights: NDArray[np.float64], level: float | None = None
    ) -> Estimate:
        state = self.weighted_state(predictions.classes)
        state.add_weighted(predictions, weights)
        return self.estimate_weighted(state, level)

    @classmethod
    def has_weighted_form(cls) -> bool:
        return cls.weighted_state is not StreamingMetric.weighted_state
