"""The contract of a training loss.

A loss is a torch module without parameters. Its fields are its options. It takes logits and labels
and returns one number: the mean over the batch, to be minimised. Half precision is computed in
float32.

Legend: N rows, K classes, z logits, p = softmax z, y the label, ŷ the first class with the largest
logit, c = p_ŷ.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from recalib.errors import InputError
from recalib.ops.torch_ops import TorchOps

__all__ = [
    "Loss",
    "Regulariser",
    "flatten_batch",
    "label_log_probability",
    "ops_for",
    "take_column",
    "top_prediction",
]

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(eq=False)
class Loss(nn.Module):
    """Base class of all losses.

    A subclass is a dataclass of its options and implements `value`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: The cost of a step, in the sizes of the legend.
    cost: ClassVar[str] = "N·K"

    def __post_init__(self) -> None:
        super().__init__()

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the batch: a scalar of the logits' precision, at least float32.

        Parameters
        ----------
        logits: (N, K), or (N, K, ...) with one prediction for each further position. Finite.
        labels: integers in [0, K), (N,) or (N, ...).

        Raises
        ------
        InputError: other shapes or types; labels out of range. Labels on an accelerator are not
            checked, because reading them would synchronise the device.
        """
        return self.value(*flatten_batch(logits, labels))

    @abstractmethod
    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of checked logits (N, K), float32 or float64, and labels int64 (N,)."""

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Start epoch `epoch`, counted from 0, of `epochs`. Most losses ignore it."""


@dataclass(eq=False)
class Regulariser(Loss):
    """A secondary loss: it does not reward accuracy and is added to a primary loss."""


def flatten_batch(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch; return logits (N, K) in float32 or float64 and labels int64 (N,)."""
    if not logits.is_floating_point() or logits.ndim < 2 or logits.shape[1] < 2 or not len(logits):
        raise InputError(
            "logits",
            found=f"{_dtype_name(logits.dtype)} {tuple(logits.shape)}",
            accepted="floats (N, K) or (N, K, ...), N ≥ 1 and K ≥ 2",
        )
    shape = logits.shape[:1] + logits.shape[2:]
    if labels.dtype not in _INTEGERS or labels.shape != shape:
        raise InputError(
            "labels",
            found=f"{_dtype_name(labels.dtype)} {tuple(labels.shape)}",
            accepted=f"integers {tuple(shape)} for logits {tuple(logits.shape)}",
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


def ops_for(logits: Tensor) -> TorchOps:
    """Return the backend for `recalib.formulas` on tensors like `logits`."""
    return TorchOps(logits.dtype, logits.device)


def take_column(x: Tensor, columns: Tensor) -> Tensor:
    """Return the entry of each row of x (N, K) at `columns` (N,), as (N,)."""
    return x.gather(1, columns[:, None])[:, 0]


def label_log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p_y of each row, (N,)."""
    return -functional.cross_entropy(logits, labels, reduction="none")


def top_prediction(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence of each row, (N,), and whether its prediction is correct, (N,)."""
    # Of the logits: two that differ may have equal probabilities after rounding.
    prediction = logits.argmax(dim=1)
    return take_column(logits.softmax(dim=1), prediction), prediction == labels


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
