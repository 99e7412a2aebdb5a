"""Kolmogorov-Smirnov calibration error: the largest distance of two cumulative curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.metrics.base import Estimate, Metric, StreamingMetric, Unit
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.fine_histogram import FineHistogram
from recalib.metrics.ks_noise import noise_of_columns
from recalib.metrics.noise_floor import noise_floor
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import WeightedCells

Values = NDArray[np.float64]

_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
#: Runs of rows by confidence whose labels are drawn together for the floor.
_RUNS = 128
#: The supremum of a Brownian motion at discrete times is smaller by this many standard deviations
#: of a step, −ζ(1/2)/√(2π) (Chernoff, Sankhyā A 27, 1965).
_OVERSHOOT = 0.5826


class KsError(StreamingMetric[FineHistogram]):
    """Kolmogorov-Smirnov calibration error: max_t |1/N Σ_{i: p_i ≤ t} (y_i − p_i)|; range [0, 1].

    Top-label: the largest distance between the cumulative sums of confidence and correctness, over
    rows in the order of confidence. If the model is overconfident everywhere, it is the mean gap;
    gaps of opposite signs cancel, unlike in `ece`. Rows with tied confidences are summed together,
    so their order does not matter. Biased upwards by at most 0.63/√N; `floor` is the mean for a
    calibrated model, accurate to 5%.

    The interval is conservative. The value is at least the distance of the curves at the point
    where the true curves are farthest apart, which is a normal variable: the upper end is the
    value plus z standard errors. The value is too large by at most N^(−1/2) times the supremum of a
    Gaussian process, which by Anderson's inequality is at most that of a Brownian motion up to
    time E(y − p)²: this gives the lower end.

    Streams: the curves are compared at the ends of the cells of `FineHistogram`, where both are
    exact. So the value is at most that of the rows; `error_bound` limits the difference.

    Source: Gupta et al., Calibration of neural networks using splines, ICLR 2021;
    paper 000, App. E.
    """

    name: ClassVar[str] = "ks_error"
    summary: ClassVar[str] = "largest distance of cumulative confidence and correctness"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "cells"

    def state(self, classes: int) -> FineHistogram:
        return FineHistogram()

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        value = _distance(predictions.confidences, predictions.confidences[predictions.correct])
        if level is None:
            return Estimate(value)
        return _estimate(value, _Noise.of_rows(predictions, np.ones(len(predictions))), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Values, level: float | None = None
    ) -> Estimate:
        value = _weighted_distance(predictions, weights)
        if level is None:
            return Estimate(value)
        return _estimate(value, _Noise.of_rows(predictions, weights), level)

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        groups = ConfidenceGroups.from_histogram(state)
        value = float(np.abs(_curve(groups)).max())
        return (
            Estimate(value) if level is None else _estimate(value, _Noise.of_cells(groups), level)
        )

    def weighted_state(self, classes: int) -> WeightedCells:
        return WeightedCells()

    def estimate_weighted(self, state: WeightedCells, level: float | None = None) -> Estimate:
        value = float(np.abs(_curve(ConfidenceGroups.from_histogram(state))).max())
        if level is None:
            return Estimate(value)
        return _estimate(value, _Noise.of_weighted_cells(state), level)

    def error_bound(self, state: FineHistogram | WeightedCells) -> float:
        """The curve is exact between cells. In a cell it is highest if its hits come first."""
        groups = ConfidenceGroups.from_histogram(state)
        curve = _curve(groups)
        rises = (groups.correct - groups.confidence_correct) / groups.ends[-1]
        falls = (groups.confidence - groups.confidence_correct) / groups.ends[-1]
        start = np.concatenate([[0.0], curve[:-1]])
        largest = max(float((start + rises).max()), float((falls - start).max()))
        return max(largest - float(np.abs(curve).max()), 0.0)


class ClasswiseKsError(Metric):
    """Class-wise Kolmogorov-Smirnov error: the mean over classes of each column's; range [0, 1].

    For each class, its probabilities against its frequency; all K classes have equal weight. Ties
    and bias as in `ks_error`. It sorts every column and is computed on request only. Interval and
    floor are simulated, see `noise_of_columns`, in about the time of 200 evaluations of 2,000 rows
    and of drawn labels.

    Source: Gupta et al., ICLR 2021, for the error of one class.
    """

    name: ClassVar[str] = "ks_error_classwise"
    summary: ClassVar[str] = "mean over classes of each column's ks_error"
    unit: ClassVar[Unit] = "fraction"
    on_request: ClassVar[bool] = True

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        columns = predictions.probabilities.T
        values = [_distance(p, p[predictions.labels == k]) for k, p in enumerate(columns)]
        value = float(np.mean(values))
        if level is None:
            return Estimate(value)
        excess, error, floors = noise_of_columns(predictions.probabilities, predictions.labels)
        tail = (1 - level) / 2
        low = value - float(np.quantile(excess, 1 - tail))
        high = value - error * float(scipy.special.ndtri(tail))
        ends = max(low, 0.0), min(high, 1.0)
        return Estimate(value, *ends, float(floors.mean()), float(np.quantile(floors, 0.95)))


def _distance(p: Floats, hits: Floats) -> float:
    """Return the largest distance, from all values (N,) and the values of hits (n,).

    Between two hits the difference only falls, so its extremes are just before or at a hit, or at
    the end. So values are sorted without their rows, which is several times as fast, and only the
    hits are looked up.
    """
    values, hits = np.sort(p), np.sort(hits)
    expected = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    largest = abs(len(hits) - expected[-1])
    for side in _SIDES:
        distances = (
            np.searchsorted(hits, hits, side) - expected[np.searchsorted(values, hits, side)]
        )
        largest = max(largest, np.max(np.abs(distances), initial=0))
    return float(largest) / len(p)


def _weighted_distance(predictions: Predictions, weights: Values) -> float:
    """Return max_t |Σ_{i: p_i ≤ t} w_i (y_i − p_i)| / Σw."""
    values, group, _ = predictions.ties
    residuals = weights * (predictions.correct - predictions.confidences.astype(np.float64))
    curve = np.cumsum(np.bincount(group, residuals, len(values)))
    return float(np.abs(curve).max() / weights.sum())


def _curve(groups: ConfidenceGroups) -> Values:
    """Return 1/N Σ (y − p) of the rows up to the end of each group, (G,)."""
    curve: Values = np.cumsum(groups.correct - groups.confidence) / groups.ends[-1]
    return curve


@dataclass(frozen=True, eq=False)
class _Noise:
    """Sums over the rows of each group of ascending confidence, (G,), and over all rows."""

    #: The number of rows, Σw, Σw², Σwp, and Σw²p(1 − p).
    rows: NDArray[np.int64]
    weights: Values
    squares: Values
    confidence: Values
    calibrated: Values
    #: Σw²(y − p)² over all rows.
    residual: float

    @classmethod
    def of_rows(cls, predictions: Predictions, weights: Values) -> _Noise:
        """Return the sums of rows with weights (N,); tied rows are a group."""
        values, group, counts = predictions.ties
        p, w, v = (
            values.astype(np.float64),
            *(np.bincount(group, weights**k).astype(np.float64) for k in (1, 2)),
        )
        residuals = weights * (predictions.correct - predictions.confidences.astype(np.float64))
        return cls(counts, w, v, w * p, v * p * (1 - p), float(residuals @ residuals))

    @classmethod
    def of_cells(cls, groups: ConfidenceGroups) -> _Noise:
        """Return the sums of the rows of cells, which have no weights."""
        rows, counts = groups.counts.astype(np.int64), groups.counts.astype(np.float64)
        residual = groups.squared_residual * float(groups.ends[-1])
        return cls(rows, counts, counts, groups.confidence, groups.calibrated_squares, residual)

    @classmethod
    def of_weighted_cells(cls, state: WeightedCells) -> _Noise:
        """Return the sums of the weighted rows of cells."""
        wrong, right = state.totals[:, :, state.filled].swapaxes(0, 1)
        n, w, wp, _, v, vp, vpp = wrong + right
        residual = float((right[4] - 2 * right[5] + vpp).sum())
        return cls(n.astype(np.int64), w, v, wp, np.maximum(vp - vpp, 0), max(residual, 0.0))

    @property
    def standard_error(self) -> float:
        """√(Σw²(y − p)²)/Σw, the largest standard error of the curves' distance.

        The sum is the larger of the sample's with two added errors, after Agresti and Coull (1998),
        and that of a calibrated model: so it stays positive if all rows are right.
        """
        observed = self.residual + 2 * float(self.squares.sum() / self.rows.sum())
        largest = max(observed, float(self.calibrated.sum()))
        return float(np.sqrt(largest)) / float(self.weights.sum())

    def floor(self) -> tuple[float, float]:
        """Return mean and 95th percentile of the error of a calibrated model, by `noise_floor`."""
        ends = np.cumsum(self.rows)
        # A group is in the run of its last row.
        runs = np.unique((ends - 1) * _RUNS // ends[-1], return_inverse=True)[1]
        totals, squares, sums, spread = (
            np.bincount(runs, values)
            for values in (self.weights, self.squares, self.confidence, self.calibrated)
        )

        steps = np.sqrt(spread.sum() / np.array([len(totals), ends[-1]]))
        missed = _OVERSHOOT * (steps[0] - steps[1])

        def error(gaps: Values) -> Values:
            distances: Values = np.abs(np.cumsum(gaps * totals, axis=1)).max(axis=1) + missed
            distances /= totals.sum()
            return distances

        counts = np.maximum(np.rint(totals**2 / squares), 1).astype(np.int64)
        return noise_floor(error, counts, sums / totals, spread / totals**2)


def _estimate(value: float, noise: _Noise, level: float) -> Estimate:
    """Return the value with interval and floor."""
    tail = (1 - level) / 2
    low = value - noise.standard_error * _supremum(1 - tail)
    high = value - noise.standard_error * float(scipy.special.ndtri(tail))
    return Estimate(value, max(low, 0.0), min(high, 1.0), *noise.floor())


def _supremum(probability: float) -> float:
    """Return the quantile of max over [0, 1] of |Brownian motion|."""
    return float(scipy.optimize.brentq(lambda x: _supremum_cdf(x) - probability, 0.01, 10))


def _supremum_cdf(x: float) -> float:
    """Return P(max over [0, 1] of |Brownian motion| ≤ x); Erdős and Kac (1946)."""
    odd = 2 * np.arange(200) + 1
    signs = np.where(odd % 4 == 1, 1, -1)
    return float(4 / np.pi * np.sum(signs / odd * np.exp(-((odd * np.pi / x) ** 2) / 8)))
