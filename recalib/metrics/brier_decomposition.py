"""Murphy's decomposition of the Brier score of the top label."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Better, Estimate, Unit
from recalib.metrics.binned import BinMetric
from recalib.metrics.calibration_gaps import Gaps, mean_squared_gap
from recalib.metrics.intervals import interval_of_mean_squared_gap
from recalib.metrics.mean_metrics import fraction_estimate
from recalib.stats.sums import Bins


class BrierReliability(BinMetric):
    """Reliability of the top label, Σ_b n_b/N · (accuracy_b − confidence_b)²; range [0, 1].

    A term of mean (p − y)² = reliability − resolution + uncertainty + within-bin terms. p is the
    confidence and y the correctness of the prediction: the score of one event, unlike `brier`,
    which sums over classes.

    The part of mean (p − y)² that is due to miscalibration; 0 is best. Over M equal-width
    right-closed bins, as in `ece`. Ties share a bin. Biased upwards: `floor` shows the bias, and
    the square of `ece_debiased` has none. The interval is for these bins with infinitely many rows;
    it is that of `ece_l2`, squared.

    Use it where the Brier score is divided into its parts: this one is what a map can remove.

    Source: Murphy, A new vector partition of the probability score, J. Appl. Meteor. 1973.
    """

    name: ClassVar[str] = "brier_reliability"
    summary: ClassVar[str] = "part of the top label's Brier score due to miscalibration"
    unit: ClassVar[Unit] = "score"
    error = staticmethod(mean_squared_gap)


class BrierResolution(BinMetric):
    """Resolution of the top label, Σ_b n_b/N · (accuracy_b − accuracy)²; range [0, 1/4].

    The part by which differences in accuracy between bins lower mean (p − y)²; large is good. Bins,
    ties, bias and source as in `brier_reliability`. The interval is that of
    `interval_of_mean_squared_gap`, for the differences between the bins' accuracies and the overall
    accuracy. It is not a calibration error and has no floor.

    Use it where the Brier score is divided into its parts: this one is what the classifier
    knows.
    """

    name: ClassVar[str] = "brier_resolution"
    summary: ClassVar[str] = "reduction of that score by bins of different accuracy"
    unit: ClassVar[Unit] = "score"
    better: ClassVar[Better | None] = "higher"

    @staticmethod
    def error(gaps: Gaps, level: float | None) -> Estimate:
        """Return Σ w·(accuracy_b − accuracy)² with its interval."""
        accuracy = float(gaps.weights @ gaps.accuracies)
        value = float(gaps.weights @ (gaps.accuracies - accuracy) ** 2)
        if level is None:
            return Estimate(value)
        if len(gaps.accuracies) == 1:  # one bin has no resolution on any sample
            return Estimate(0.0, 0.0, 0.0)
        return Estimate(value, *_interval_of_resolution(gaps, accuracy, value, level))


class BrierUncertainty(BinMetric):
    """Uncertainty of the top label, accuracy · (1 − accuracy); range [0, 1/4].

    The score if every row had the accuracy as its confidence. It depends on neither bins nor ties.
    Biased downwards by the factor 1 − 1/N. The interval is Wilson's for the accuracy. It is not a
    calibration error and has no floor. Source as in `brier_reliability`.

    Use it where the Brier score is divided into its parts: this one is what the task costs.
    """

    name: ClassVar[str] = "brier_uncertainty"
    summary: ClassVar[str] = "that score if every confidence were the accuracy"
    unit: ClassVar[Unit] = "score"
    better: ClassVar[Better | None] = None

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        w, v = state.moments, state.squared
        right, squared_right = w.correct.sum(), v.correct.sum()
        totals = state.count.sum(), w.weight.sum(), v.weight.sum(), right
        accuracy = fraction_estimate(np.array([*totals, squared_right, squared_right]), level)
        value, low, high = accuracy.value * (1 - accuracy.value), accuracy.low, accuracy.high
        if low is None or high is None:
            return Estimate(value)
        largest = 0.25 if low <= 0.5 <= high else max(low * (1 - low), high * (1 - high))
        return Estimate(value, min(low * (1 - low), high * (1 - high)), largest)


def _interval_of_resolution(
    bins: Gaps, accuracy: float, value: float, level: float
) -> tuple[float, float]:
    """Return an interval for Σ w·d², d the bins' accuracies minus the overall accuracy.

    The variance of d_b is v_b(1 − 2w_b) + Σ w²v, since a bin contributes to the overall accuracy.
    """
    distances, shares = bins.accuracies - accuracy, bins.weights
    variances = bins.variances * (1 - 2 * shares) + shares**2 @ bins.variances
    low, high = interval_of_mean_squared_gap(shares, distances, variances, level, rows=bins.rows)
    return min(low, value), max(min(high, 0.25), value)
