"""Expected calibration error over hard bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.core.field_types import AtLeastOne, Count
from recalib.objectives.base import TopLabelObjective
from recalib.ops.base import Array, FittingOps


@dataclass(frozen=True)
class HardBinned(TopLabelObjective):
    """A function of sums over equal-width bins closed on the right.

    Options: `bins` M.
    """

    smooth: ClassVar[bool] = False

    bins: Count = 15

    @property
    def summable(self) -> bool:
        return True

    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array:
        sums = self.sums_of_confidences(ops, confidence, correct, weights)
        return self.of_sums(ops, sums, len(confidence))

    def sums_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> tuple[Array, ...]:
        index = np.ceil(np.asarray(confidence) * self.bins).astype(np.int64) - 1
        index = np.clip(index, 0, self.bins - 1)
        gaps = ops.sum_by_label((correct - confidence) * weights, index, self.bins)
        return ops.sum_by_label(weights, index, self.bins), gaps


@dataclass(frozen=True)
class HardBinnedEce(HardBinned):
    """ECE of the top prediction over equal-width bins closed on the right; range [0, 1].

    (Σ_j n_j/N |A_j − C_j|^p)^(1/p). A step function, minimised by search with ever finer
    steps around the best points.

    Options: `bins` M; `order` p ≥ 1.

    Use it where the metric to improve is ECE with these bins, and few parameters are fitted.

    Source: paper 000, eqs. 3 to 6, and appendix C, where it is called TS-HB-ECE.
    """

    name: ClassVar[str] = "hb_ece"
    summary: ClassVar[str] = "hard-binned calibration error, by search; improper"

    order: AtLeastOne = 1.0

    def of_sums(self, ops: FittingOps, sums: tuple[Array, ...], rows: float) -> Array:
        return hard_binned_error(sums, rows, self.order)


def hard_binned_error(sums: tuple[Array, ...], rows: float, order: float) -> Array:
    """Return (Σ_j w_j/N |A_j − C_j|^p)^(1/p) from Σ w and Σ w (a − c) of bins."""
    totals, gaps = sums
    if order == 1:
        return abs(gaps).sum() / rows
    filled = np.flatnonzero(np.asarray(totals) > 0)
    powers = totals[filled] * abs(gaps[filled] / totals[filled]) ** order
    return (powers.sum() / rows) ** (1 / order)
