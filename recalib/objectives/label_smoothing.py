"""Cross-entropy with smoothed labels, a baseline of paper 003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from recalib.core.field_types import Interval
from recalib.objectives.base import Objective
from recalib.ops.base import Array, FittingOps
from recalib.ops.formulas import smoothed_cross_entropy


@dataclass(frozen=True)
class LabelSmoothing(Objective):
    """Cross-entropy with α of each label spread over the other classes; range [0, ∞).

    −1/N Σ [(1 − α) log p_y + α/(K−1) Σ_{k≠y} log p_k]. The other unmasked classes get
    α/(K−1), with K the number of unmasked classes. Improper: the target confidence is 1 − α.

    Options: `smoothing` α in [0, 1), by default 0.05, that of paper 003.

    Use it where a paper's comparison is reproduced.

    Source: paper 003, section 5.1; α/(K−1) as in paper 004, since paper 003 gives no formula.
    """

    name: ClassVar[str] = "label_smoothing"
    summary: ClassVar[str] = "cross-entropy with smoothed labels; improper"
    by_row: ClassVar[bool] = True

    smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.05

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        terms = smoothed_cross_entropy(ops, log_probabilities, labels, self.smoothing)
        return (terms * weights).mean()
