"""The contract of a metric.

A metric reads `Predictions` and returns an `Estimate`: a number and, on request, an interval.
A metric that is a function of sums is a `StreamingMetric`: it also has a `State` of constant size,
see `recalib.stats.sums`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from recalib.core.arrays import Numbers
from recalib.errors import InputError
from recalib.metrics.predictions import Predictions
from recalib.stats.sums import State

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

    Examples
    --------
    >>> ece = recalib.evaluate(labels, logits=logits, intervals=True)["ece"]
    >>> 0 <= ece.low <= ece.value <= ece.high and ece.floor > 0
    True
    """

    value: float
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    floor_high: float | None = None


class Metric(ABC):
    """A function of predictions and labels.

    Examples
    --------
    >>> from recalib.metrics import METRICS, Predictions
    >>> rows = Predictions.from_logits(logits, labels)
    >>> round(METRICS["smooth_ece"]().measure(rows).value, 2)
    0.17
    """

    name: ClassVar[str]
    #: One line for `--help`, reports and `docs/metrics.md`.
    summary: ClassVar[str]
    #: That of most metrics by default: errors of probabilities.
    unit: ClassVar[Unit] = "fraction"
    #: Which value is the better one; None for a metric that only describes.
    better: ClassVar[Better | None] = "lower"
    #: True for an expensive metric, which is computed only when the caller names it.
    on_request: ClassVar[bool] = False
    #: Whether the metric is defined for weighted rows.
    takes_weights: ClassVar[bool] = True

    def __init__(self, bins: int = 15) -> None:
        """Set M, the number of bins; metrics without bins ignore it."""
        self.bins = bins

    @abstractmethod
    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        """Return the metric, with an interval of confidence `level` if it has one.

        The interval is for the value on infinitely many rows from the same distribution.

        Parameters
        ----------
        weights: (N,), positive; a metric without `takes_weights` ignores them. A row with a whole
            weight w counts like w equal rows. The interval and the floor are those of N sampled
            rows whose weights are known: rows are not counted as repeated. See
            `recalib.metrics.mean_metrics`.

        Raises
        ------
        UndefinedMetricError: no row counts for the metric.
        """

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

    Examples
    --------
    >>> from recalib.metrics import METRICS, Predictions
    >>> ece = METRICS["ece"]()
    >>> state = ece.state(classes=3)
    >>> ece.add(state, Predictions.from_logits(logits, labels))
    >>> round(ece.estimate(state).value, 2)
    0.18
    """

    state_kind: ClassVar[str]

    @abstractmethod
    def state(self, classes: int, *, weighted: bool = False) -> S:
        """Return an empty state for K = `classes`, of rows with or without weights."""

    @abstractmethod
    def add(self, state: S, predictions: Predictions, weights: Numbers | None = None) -> None:
        """Add a batch to a state; weights (n,) are positive, and 1 by default."""

    @abstractmethod
    def estimate(self, state: S, level: float | None = None) -> Estimate:
        """Return the metric of the rows in `state`, at least one.

        Raises
        ------
        UndefinedMetricError: as `measure`.
        """

    def error_bound(self, state: S) -> float:
        """Return a bound on `|estimate(state).value − measure(rows).value|` for rows in `state`.

        It is 0 for a metric that is a function of its sums; both values then differ by rounding.
        """
        return 0.0

    @property
    def reads_state(self) -> bool:
        """Whether `measure` reads the state alone; a metric that overrides it also reads rows."""
        return type(self).measure is StreamingMetric.measure

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        state = self.state(predictions.classes, weighted=weights is not None)
        self.add(state, predictions, weights)
        return self.estimate(state, level)
