"""Class-wise calibration errors: each class's probabilities against its frequency."""

from __future__ import annotations

from typing import ClassVar

from recalib.metrics.base import Estimate, Unit
from recalib.metrics.binned import ClassMetric
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.stats.class_bins import ClassBins


class ClasswiseError(ClassMetric):
    """Class-wise ECE: 1/K Σ_k Σ_b n_bk/N · |frequency_bk − confidence_bk|; range [0, 1].

    For each class, its probabilities against its frequency, over M equal-width right-closed bins.
    All K classes have equal weight. Ties share a bin. With many classes the value is small because
    most probabilities are small. Biased upwards, see `floor`. The interval is for these bins with
    infinitely many rows, see `interval_of_mean_gap`.

    Source: paper 002, definition 3.7 with ρ = 1, and App. A.1.
    """

    name: ClassVar[str] = "classwise_ece"
    summary: ClassVar[str] = "mean over classes of each column's calibration error"
    unit: ClassVar[Unit] = "fraction"

    def estimate(self, state: ClassBins, level: float | None = None) -> Estimate:
        return mean_gap(Gaps.of(state), level)


class MarginalError(ClassMetric):
    """ℓ2 marginal error: √(1/K Σ_k Σ_b n_bk/N · (frequency_bk − confidence_bk)²); range [0, 1].

    The root of the mean squared class-wise gap; all classes have equal weight. Bins, ties and bias
    as in `classwise_ece`, which is never larger. Bins have equal width; the paper's table has bins
    of equal counts, which need a sort of every column. The interval is that of
    `interval_of_mean_squared_gap`.

    Source: Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, definition 2.4,
    where class weights are free; paper 000, App. J, which gives no formula.
    """

    name: ClassVar[str] = "marginal_ece_l2"
    summary: ClassVar[str] = "root mean squared gap over all classes and their bins"
    unit: ClassVar[Unit] = "fraction"

    def estimate(self, state: ClassBins, level: float | None = None) -> Estimate:
        return root_mean_squared_gap(Gaps.of(state), level)
