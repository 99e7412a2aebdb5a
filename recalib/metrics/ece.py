"""Expected, ℓ2 and maximum calibration error over equal-width bins of confidence."""

from __future__ import annotations

from typing import ClassVar

from recalib.metrics.base import Estimate, Unit
from recalib.metrics.binned import BinMetric
from recalib.metrics.calibration_gaps import Gaps, largest_gap, mean_gap, root_mean_squared_gap
from recalib.stats.sums import Bins


class ExpectedCalibrationError(BinMetric):
    """Expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    Top-label, over M equal-width right-closed bins. Ties share a bin. Biased upwards: a perfectly
    calibrated classifier has a positive ECE, larger with fewer rows; `floor` shows how large. The
    interval is for the ECE of these bins with infinitely many rows, see `interval_of_mean_gap`.

    Source: papers 000 eq. 3, 003 eq. 1 and 004 eq. 2 (M = 15).
    """

    name: ClassVar[str] = "ece"
    summary: ClassVar[str] = "expected calibration error, equal-width bins"
    unit: ClassVar[Unit] = "fraction"

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        return mean_gap(Gaps.of(state), level)


class L2CalibrationError(BinMetric):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Bins and ties as in ECE. It is at least as large as ECE, and large gaps dominate it. Biased
    upwards, see `floor`; `ece_debiased` estimates the same without this bias. The interval is for
    these bins with infinitely many rows, see `interval_of_mean_squared_gap`.

    Source: paper 000, eq. 6 with p = 2.
    """

    name: ClassVar[str] = "ece_l2"
    summary: ClassVar[str] = "root mean squared gap, equal-width bins"
    unit: ClassVar[Unit] = "fraction"

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        return root_mean_squared_gap(Gaps.of(state), level)


class MaximumCalibrationError(BinMetric):
    """Maximum calibration error: max_b |accuracy_b − confidence_b| over filled bins; range [0, 1].

    Bins and ties as in ECE. Strongly biased upwards: a single row in a bin can determine it. The
    interval is for the largest gap of these non-empty bins with infinitely many rows; it is wide
    if a bin holds few rows, see `interval_of_largest_gap`.

    Source: paper 004, eq. 3.
    """

    name: ClassVar[str] = "mce"
    summary: ClassVar[str] = "largest gap of any equal-width bin"
    unit: ClassVar[Unit] = "fraction"

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        return largest_gap(Gaps.of(state), level)
