"""Confidence scores: how sure a prediction is, for losses that rank predictions by it."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from recalib.losses.base import entropy

__all__ = ["Confidence", "confidence_of", "range_of"]

#: Maximum softmax probability; its lead over the second; entropy times −1, in nats.
#: Paper 002, appendix A, which there writes the entropy with logits z for probabilities p.
Confidence = Literal["msp", "margin", "negative_entropy"]


def confidence_of(log_p: Tensor, kind: Confidence) -> Tensor:
    """Return the score of each row of log p (N, K), as (N,)."""
    if kind == "negative_entropy":
        return -entropy(log_p)
    if kind == "msp":
        return log_p.max(dim=1).values.exp()
    first, second = torch.topk(log_p, 2, dim=1).values.exp().unbind(dim=1)
    return first - second


def range_of(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return between what a score lies, as far as it is the same for any number of rows."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
