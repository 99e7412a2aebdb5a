"""Kolmogorov-Smirnov calibration error: the largest distance of two cumulative curves."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy

from recalib.core.arrays import Floats, Numbers
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.binned import GroupMetric
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.ks_noise import noise_of_columns
from recalib.metrics.noise_floor import noise_floor
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import group_sums

_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
#: Runs of rows by confidence whose labels are drawn together for the floor.
_RUNS = 128
#: The supremum of a Brownian motion at discrete times is smaller by this many standard deviations
#: of a step, −ζ(1/2)/√(2π) (Chernoff, Sankhyā A 27, 1965).
_OVERSHOOT = 0.5826


class KsError(GroupMetric):
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

    Streams: the curves are compared at the ends of the cells of `Cells`, where both are
    exact. So the value is at most that of the rows; `error_bound` limits the difference.

    Use it where no bins are wanted, and errors of opposite sign at different confidences matter
    less.

    Source: Gupta et al., Calibration of neural networks using splines, ICLR 2021;
    paper 000, App. E.
    """

    name: ClassVar[str] = "ks_error"
    summary: ClassVar[str] = "largest distance of cumulative confidence and correctness"

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        if weights is not None:
            return super().measure(predictions, level, weights)
        # Several times as fast as groups.
        value = _distance(predictions.confidences, predictions.confidences[predictions.correct])
        if level is None:
            return Estimate(value)
        groups = ConfidenceGroups.from_rows(predictions.ties, predictions.correct)
        return _estimate(value, groups, level)

    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        value = float(np.abs(_curve(groups)).max())
        return Estimate(value) if level is None else _estimate(value, groups, level)

    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        """Return the error, in a cell as if its hits came first; between cells it is exact."""
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

    Use it where the probabilities of all classes are used, without bins.

    Source: Gupta et al., ICLR 2021, for the error of one class.
    """

    name: ClassVar[str] = "ks_error_classwise"
    summary: ClassVar[str] = "mean over classes of each column's ks_error"
    on_request: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
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


def _curve(groups: ConfidenceGroups) -> Numbers:
    """Return 1/N Σ (y − p) of the rows up to the end of each group, (G,)."""
    return np.cumsum(groups.correct - groups.confidence) / groups.ends[-1]


def _estimate(value: float, groups: ConfidenceGroups, level: float) -> Estimate:
    """Return the value with interval and floor."""
    error, tail = _standard_error(groups), (1 - level) / 2
    low = value - error * _supremum(1 - tail)
    high = value - error * float(scipy.special.ndtri(tail))
    return Estimate(value, max(low, 0.0), min(high, 1.0), *_floor(groups))


def _standard_error(groups: ConfidenceGroups) -> float:
    """Return √(Σw²(y − p)²)/Σw, the largest standard error of the curves' distance.

    The sum is the larger of the sample's with two added errors, after Agresti and Coull (1998),
    and that of a calibrated model: so it stays positive if all rows are right.
    """
    errors = 2 * float(groups.squared.weight.sum() / groups.rows.sum())
    observed = float(groups.squared.residual_squares().sum()) + errors
    largest = max(observed, float(groups.squared.calibrated_squares().sum()))
    return float(np.sqrt(largest)) / float(groups.ends[-1])


def _floor(groups: ConfidenceGroups) -> tuple[float, float]:
    """Return mean and 95th percentile of the error of a calibrated model, by `noise_floor`."""
    ends = np.cumsum(groups.rows)
    # A group is in the run of its last row.
    runs = np.unique((ends - 1) * _RUNS // ends[-1], return_inverse=True)[1]
    totals, squares, sums, spread = (
        group_sums(runs, values, runs[-1] + 1)
        for values in (
            groups.counts,
            groups.squared.weight,
            groups.confidence,
            groups.squared.calibrated_squares(),
        )
    )
    steps = np.sqrt(spread.sum() / np.array([len(totals), ends[-1]]))
    missed = _OVERSHOOT * (steps[0] - steps[1])

    def error(gaps: Numbers) -> Numbers:
        distances: Numbers = np.abs(np.cumsum(gaps * totals, axis=1)).max(axis=1) + missed
        distances /= totals.sum()
        return distances

    counts = np.maximum(np.rint(totals**2 / squares), 1).astype(np.int64)
    return noise_floor(error, counts, sums / totals, spread / totals**2)


def _supremum(probability: float) -> float:
    """Return the quantile of max over [0, 1] of |Brownian motion|."""
    return float(scipy.optimize.brentq(lambda x: _supremum_cdf(x) - probability, 0.01, 10))


def _supremum_cdf(x: float) -> float:
    """Return P(max over [0, 1] of |Brownian motion| ≤ x); Erdős and Kac (1946)."""
    odd = 2 * np.arange(200) + 1
    signs = np.where(odd % 4 == 1, 1, -1)
    return float(4 / np.pi * np.sum(signs / odd * np.exp(-((odd * np.pi / x) ** 2) / 8)))
