"""Focal loss, a baseline of paper 003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recalib.core.field_types import NonNegative
from recalib.objectives.base import Objective
from recalib.ops.base import Array, FittingOps
from recalib.ops.formulas import focal_terms


@dataclass(frozen=True)
class Focal(Objective):
    """Focal loss, −1/N Σ (1 − p_y)^γ log p_y; range [0, ∞).

    Rows with a large p_y have a small weight, smaller for a larger γ; γ = 0 is the negative
    log-likelihood. Improper: its minimum is less confident than the truth.

    Options: `gamma` γ ≥ 0, by default 3, that of paper 003.

    Use it where a paper's comparison is reproduced.

    Source: paper 004, eq. 1; paper 003, section 5.1.
    """

    name: ClassVar[str] = "focal"
    summary: ClassVar[str] = "focal loss; improper"
    by_row: ClassVar[bool] = True

    gamma: NonNegative = 3.0

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        return (focal_terms(ops, log_probabilities, labels, self.gamma) * weights).mean()
