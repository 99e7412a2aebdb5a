"""Expected calibration error over soft bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.core.field_types import AtLeastOne, Count, Positive
from recalib.objectives.base import TopLabelObjective
from recalib.ops.base import Array, FittingOps
from recalib.ops.formulas import (
    soft_bin_sums,
    soft_binned_error,
    soft_binned_error_of_sums,
)


@dataclass(frozen=True)
class SoftBinnedEce(TopLabelObjective):
    """Soft-binned ECE of the top prediction; range [0, 1].

    Confidence c_i and correctness a_i of each row belong to every bin j with a membership u_j(c_i),
    see `recalib.ops.formulas.soft_bins`. With S_j = Σ u_j(c_i), C_j = Σ u_j(c_i) c_i / S_j and
    A_j = Σ u_j(c_i) a_i / S_j:

    - `binned`: (Σ_j S_j/N |A_j − C_j|^p)^(1/p);
    - `label_binned`: (1/N Σ_i Σ_j u_j(c_i) |A_j − c_i|^p)^(1/p), never smaller.

    Improper: it does not measure sharpness, and with wide bins its minimum may be at confidence 1
    for all rows (for example label-binned with a bin temperature of .1). A fit detects this and
    uses the parameters by likelihood instead, with a warning.

    Options: `bins` M; `bin_temperature` T > 0; `order` p ≥ 1; `variant`. The defaults were chosen
    without test data, by `benchmarks.soft_bins` of commit 728eb28e. Paper 000 uses 15 bins and
    reports order 2. On held-out halves most settings differ by less than chance. For `binned` of
    order 2, T = .0003 is the worst by both measured errors; one is smallest at .001, the other at
    .01, and .003 is within 0.1 points of both, and of the results with 10 bins.

    Use it where the metric to improve is ECE itself.

    Source: paper 000, eqs. 8 to 12.
    """

    name: ClassVar[str] = "sb_ece"
    summary: ClassVar[str] = "soft-binned calibration error of the top label; improper"

    bins: Count = 15
    bin_temperature: Positive = 0.003
    order: AtLeastOne = 2.0
    variant: Literal["binned", "label_binned"] = "binned"

    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array:
        return soft_binned_error(
            ops, confidence, correct, weights,
            self.bins, self.bin_temperature, self.order, self.variant,
        )  # fmt: skip

    @property
    def summable(self) -> bool:
        return self.variant == "binned" or self.order == 2

    def sums_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> tuple[Array, ...]:
        return soft_bin_sums(ops, confidence, correct, weights, self.bins, self.bin_temperature)

    def of_sums(self, ops: FittingOps, sums: tuple[Array, ...], rows: float) -> Array:
        return soft_binned_error_of_sums(sums, rows, self.order, self.variant)
