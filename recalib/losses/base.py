"""What a network is trained on.

A loss is a torch module without parameters, whose fields are its options. Called with logits and
labels it returns one number, the mean over the batch, lower being better. Half precision is
computed in float32. Legend: N rows, K classes, z logits, p = softmax z, y the label,
ŷ the class of the largest logit, c = p_ŷ.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.losses.narrow import NarrowOps
from recalib.losses.softmax import softmax_of

__all__ = ["Loss", "Regulariser", "ops_for", "rows", "top"]

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(eq=False)
class Loss(nn.Module):
    """A function of logits and labels that training makes small.

    A subclass is a dataclass of its options and computes `value`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: What a step costs, in the sizes of the legend.
    cost: ClassVar[str] = "N·K"

    def __post_init__(self) -> None:
        super().__init__()

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the batch, a scalar of the logits' precision, at least float32.

        Parameters
        ----------
        logits: (N, K), or (N, K, ...) with a prediction at every further place. Finite.
        labels: integers in [0, K), (N,) or (N, ...).

        Raises
        ------
        InputError: shapes or types other than these; labels out of range, where they are in the
            computer's own memory: to look at an accelerator's would stop it.
        """
        return self.value(*rows(logits, labels))

    @abstractmethod
    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of checked logits (N, K), float32 or float64, and labels int64 (N,)."""

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Take note that the epoch of this number, from 0, of so many begins. Most do not ask."""


@dataclass(eq=False)
class Regulariser(Loss):
    """A loss that says nothing of accuracy, and is added to one that does."""


def rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, K) in float32 or float64 and labels int64 (N,), every place a row."""
    if not logits.is_floating_point() or logits.ndim < 2 or logits.shape[1] < 2 or not len(logits):
        raise InputError(
            "logits",
            found=f"{_plain(logits.dtype)} {tuple(logits.shape)}",
            accepted="floats (N, K) or (N, K, ...), N ≥ 1 and K ≥ 2",
        )
    shape = logits.shape[:1] + logits.shape[2:]
    if labels.dtype not in _INTEGERS or labels.shape != shape:
        raise InputError(
            "labels",
            found=f"{_plain(labels.dtype)} {tuple(labels.shape)}",
            accepted=f"integers {tuple(shape)}, as logits {tuple(logits.shape)} ask for",
        )
    classes = logits.shape[1]
    labels = labels.reshape(-1).long()
    if labels.device.type == "cpu" and not bool(((labels >= 0) & (labels < classes)).all()):
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise InputError("labels", found=found, accepted=f"0 to {classes - 1}")
    if logits.ndim > 2:
        logits = logits.movedim(1, -1).reshape(-1, classes)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits, labels


def ops_for(logits: Tensor) -> NarrowOps:
    """Return the backend in which formulas compute on `logits`."""
    return NarrowOps(logits.dtype, logits.device)


def top(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return p of the largest logit, the first among equals, and where it is the label's, (N,)."""
    found = softmax_of(logits, labels, "largest")
    return found.largest.exp(), found.place == labels


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
