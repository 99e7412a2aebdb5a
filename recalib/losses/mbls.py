"""Margin-based label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from recalib.losses.base import Regulariser
from recalib.losses.margins import margins_of
from recalib.options import check_option

__all__ = ["Mbls"]


@dataclass(eq=False)
class Mbls(Regulariser):
    """Margin-based label smoothing, Σ_k max(0, z_ŷ − z_k − M); range [0, ∞).

    Logits may be as far below the largest as M, and every unit farther costs one. The source
    averages over classes.

    `variant`: `loss` is eq. 14 as it is written, and pulls the largest logit down by as much as it
    pulls all others up; in `gradient`, of the same value, the largest logit is held constant, as
    eq. 15 and table 2 have it.

    Options: `margin` M ≥ 0, by default 10; paper 001 has 6 for CIFAR-10. `variant`.

    Source: Liu et al., The devil is in the margin, CVPR 2022, as paper 001, S1.4, gives it.
    """

    name: ClassVar[str] = "mbls"
    summary: ClassVar[str] = "penalty on logits farther than a margin below the largest"

    margin: float = 10.0
    variant: Literal["loss", "gradient"] = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("margin", self.margin, self.margin >= 0, "margin ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        held = self.variant == "gradient"
        return margins_of(logits, self.margin, power=1, held=held).beyond.mean()
