"""Confidence scores, for losses that rank rows by confidence."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from recalib.losses.base import take_column

__all__ = ["Confidence", "losses_and_scores", "score_range"]

#: The maximum softmax probability; its margin over the second; the negative entropy in nats.
#: Paper 002, appendix A, where the entropy is written with logits z instead of probabilities p.
Confidence = Literal["msp", "margin", "negative_entropy"]


def losses_and_scores(logits: Tensor, labels: Tensor, kind: Confidence) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and the score of each row of logits (N, K), each (N,)."""
    log_p = logits.log_softmax(dim=1)
    losses = -take_column(log_p, labels)
    if kind == "negative_entropy":
        return losses, (log_p.exp() * log_p).sum(dim=1)
    largest, prediction = log_p.max(dim=1)
    if kind == "msp":
        return losses, largest.exp()
    second = log_p.scatter(1, prediction[:, None], -torch.inf).max(dim=1).values
    return losses, largest.exp() - second.exp()


def score_range(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return the smallest and the largest possible score."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
