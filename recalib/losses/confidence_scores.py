"""Confidence scores: how sure a prediction is, for losses that rank predictions by it."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from recalib.losses.softmax import softmax_of

__all__ = ["Confidence", "losses_and_scores", "range_of"]

#: Maximum softmax probability; its lead over the second; entropy times −1, in nats.
#: Paper 002, appendix A, which there writes the entropy with logits z for probabilities p.
Confidence = Literal["msp", "margin", "negative_entropy"]


def losses_and_scores(logits: Tensor, labels: Tensor, kind: Confidence) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and the score of each row of logits (N, K), each (N,)."""
    if kind == "negative_entropy":
        found = softmax_of(logits, labels, "entropy")
        return -found.label, -found.entropy
    if kind == "msp":
        found = softmax_of(logits, labels, "largest")
        return -found.label, found.largest.exp()
    found = softmax_of(logits, labels, "largest", "second")
    return -found.label, found.largest.exp() - found.second.exp()


def range_of(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return between what a score lies, as far as it is the same for any number of rows."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
