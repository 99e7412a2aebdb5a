"""A linear model."""

from __future__ import annotations

from torch import Tensor, nn


class Linear(nn.Module):
    """One linear layer on the flattened input: multinomial logistic regression.

    With two classes and no offsets it is the model of paper 004, appendix B, whose weights are the
    difference of the two classes' weights here.

    Options: `features`, the numbers in an input; `offsets`, whether classes have an offset.
    """

    def __init__(self, classes: int, *, features: int, offsets: bool = True) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes, bias=offsets)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1))
