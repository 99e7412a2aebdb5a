"""Expected calibration error over hard bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.objectives.base import TopLabelObjective
from recalib.ops.base import Array, FittingOps
from recalib.options import check_option

__all__ = ["HardBinnedEce", "hard_binned_ece"]


@dataclass(frozen=True)
class HardBinnedEce(TopLabelObjective):
    """ECE of the top prediction over equal-width bins closed on the right; range [0, 1].

    (Σ_j n_j/N |A_j − C_j|^p)^(1/p). A step function, minimised by search with ever finer
    steps around the best points.

    Options: `bins` M; `order` p ≥ 1.

    Source: paper 000, eqs. 3 to 6, and appendix C, where it is called TS-HB-ECE.
    """

    name: ClassVar[str] = "hb_ece"
    summary: ClassVar[str] = "hard-binned calibration error, by search; improper"
    smooth: ClassVar[bool] = False

    bins: int = 15
    order: float = 1.0

    def __post_init__(self) -> None:
        check_option("bins", self.bins, self.bins >= 1, "bins ≥ 1")
        check_option("order", self.order, self.order >= 1, "order ≥ 1")

    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array:
        return hard_binned_ece(ops, confidence, correct, weights, self.bins, self.order)


def hard_binned_ece(
    ops: FittingOps, confidence: Array, correct: Array, weights: Array, bins: int, order: float
) -> Array:
    """Return (Σ_j w_j/N |A_j − C_j|^p)^(1/p) over `bins` equal-width bins, closed on the right."""
    index = np.clip(np.ceil(np.asarray(confidence) * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = ops.sum_by_label((correct - confidence) * weights, index, bins)
    if order == 1:
        return abs(gaps).sum() / len(confidence)
    sums = ops.sum_by_label(weights, index, bins)
    filled = np.flatnonzero(np.asarray(sums) > 0)
    powers = sums[filled] * abs(gaps[filled] / sums[filled]) ** order
    return (powers.sum() / len(confidence)) ** (1 / order)
