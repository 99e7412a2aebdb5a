"""A linear model."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Linear"]


class Linear(nn.Module):
    """One linear layer on everything that an input holds: multinomial logistic regression.

    With two classes and no offsets it is paper 004's model of appendix B, whose weights are the
    difference of ours.

    Options: `features`, how many numbers an input has; `offsets`, whether classes have one.
    """

    def __init__(self, classes: int, *, features: int, offsets: bool = True) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes, bias=offsets)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(inputs.flatten(1))
        return logits
