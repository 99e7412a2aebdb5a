"""Calibration error over bins of equal counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions

__all__ = ["EqualMassError", "EqualMassL2Error", "equal_mass_gaps"]


def equal_mass_gaps(
    predictions: Predictions, bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return accuracy − confidence of each of M bins of equal counts, and the bins' shares.

    Rows are sorted by confidence and cut into M runs whose lengths differ by at most one (N runs
    where N < M). Rows of equal confidence may be cut apart; so that their order in the file does
    not matter, each counts with the accuracy of all rows of that confidence.
    """
    order = np.argsort(predictions.confidences, kind="stable")
    p = predictions.confidences[order]
    group = np.concatenate([[0], np.cumsum(p[1:] != p[:-1])])
    accuracy = np.bincount(group, predictions.correct[order]) / np.bincount(group)
    residuals = accuracy[group] - p.astype(np.float64)
    count = min(bins, len(p))
    starts = np.arange(count) * len(p) // count
    sizes = np.diff([*starts, len(p)])
    return np.add.reduceat(residuals, starts) / sizes, sizes / len(p)


class EqualMassError(Metric):
    """Adaptive expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    As ECE, over M bins of equal counts instead of equal width, so that no bin is nearly empty.
    Ties: see `equal_mass_gaps`. Biased upwards. No interval in this version: that of ECE takes
    bins' gaps for independent, and those of bins that share tied rows are not.

    Source: paper 004, App. F (AdaECE); paper 001, S2.1 (AECE).
    """

    name: ClassVar[str] = "ece_equal_mass"
    summary: ClassVar[str] = "expected calibration error, bins of equal counts"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        gaps, weights = equal_mass_gaps(predictions, self.bins)
        return Estimate(float(np.sum(weights * np.abs(gaps))))


class EqualMassL2Error(Metric):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Over M bins of equal counts; at least as large as the ℓ1 form, and dominated by large gaps.
    Biased upwards. No interval in this version.

    Source: paper 000, eq. 4 with p = 2, and its equal-mass binning.
    """

    name: ClassVar[str] = "ece_l2_equal_mass"
    summary: ClassVar[str] = "root mean squared gap, bins of equal counts"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        gaps, weights = equal_mass_gaps(predictions, self.bins)
        return Estimate(float(np.sqrt(np.sum(weights * gaps**2))))
