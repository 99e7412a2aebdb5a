"""Adaptive and conditional label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from recalib.losses.base import Regulariser
from recalib.losses.margins import margins_of
from recalib.options import check_option

__all__ = ["Acls"]


@dataclass(eq=False)
class Acls(Regulariser):
    """Adaptive and conditional label smoothing (ACLS); range [0, ∞).

    λ1 ReLU(z_ŷ − min z − M)² + λ2 Σ_{j≠ŷ} ReLU(z_ŷ − z_j − M)²: the predicted class is pulled
    down and the others up, the more the farther apart they are beyond a margin.

    `variant`:

    - `loss`: eq. 13 as it is written. Its gradient is not eq. 12: it is twice that, and pulls on
      the smallest logit and, through every other class, on the largest too.
    - `gradient`: half of eq. 13, with the logits that are subtracted or subtracted from held
      constant (min z in the first term, z_ŷ in the second): its gradient is eq. 12, from
      which the paper starts.
    - `released`: as in the authors' code, λ1 ReLU(z_ŷ − M)² + λ2 mean_{j≠ŷ} ReLU(z_ŷ − z_j − M)²,
      which depends on where the logits' zero is.

    Options: `lambda1`, `lambda2` ≥ 0, by default 0.1 and 0.01; `margin` M ≥ 0, by default 10, and
    6 in the paper for CIFAR-10; `variant`.

    Source: paper 001, eqs. 10 to 13 and section 4.1.
    """

    name: ClassVar[str] = "acls"
    summary: ClassVar[str] = "smoothing that adapts to how far logits lie beyond a margin"

    lambda1: float = 0.1
    lambda2: float = 0.01
    margin: float = 10.0
    variant: Literal["loss", "gradient", "released"] = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("lambda1", self.lambda1, self.lambda1 >= 0, "lambda1 ≥ 0")
        check_option("lambda2", self.lambda2, self.lambda2 >= 0, "lambda2 ≥ 0")
        check_option("margin", self.margin, self.margin >= 0, "margin ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        held = self.variant == "gradient"
        # The predicted class counts 0 among the others: it lies no margin below itself.
        largest, smallest, others = margins_of(logits, self.margin, power=2, held=held)
        if self.variant == "released":
            predicted = (largest - self.margin).relu().square()
            others = others / (logits.shape[1] - 1)
        else:
            smallest = smallest.detach() if held else smallest
            predicted = (largest - smallest - self.margin).relu().square()
        total = (self.lambda1 * predicted + self.lambda2 * others).mean()
        return total / 2 if held else total
