"""Confidence scores, for losses that rank rows by confidence."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from recalib.losses.base import entropy, take_column

#: The maximum softmax probability; its margin over the second; the negative entropy in nats.
#: Paper 002, appendix A, where the entropy is written with logits z instead of probabilities p.
Confidence = Literal["msp", "margin", "negative_entropy"]


#: In place of log 0, whose derivative is not finite.
_MIN_LOG = -1e30


def losses_and_scores(logits: Tensor, labels: Tensor, kind: Confidence) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and the score of each row of logits (N, K), each (N,)."""
    log_p = logits.log_softmax(dim=1)
    losses = -take_column(log_p, labels)
    if kind == "negative_entropy":
        return losses, -entropy(log_p)
    largest, prediction = log_p.max(dim=1)
    if kind == "msp":
        return losses, largest.exp()
    second = log_p.scatter(1, prediction[:, None], -torch.inf).max(dim=1).values
    return losses, largest.exp() - second.exp()


def rank_score(logits: Tensor, kind: Confidence) -> Tensor:
    """Return a number for each row that increases with its score, (N,).

    The scores of confident rows are equal in floating point; these numbers are not, because they
    are logarithms of the distance to the largest score.
    """
    log_p = logits.log_softmax(dim=1)
    if kind == "negative_entropy":
        return -log_entropy(log_p)
    prediction = logits.argmax(dim=1)
    other_log_p = log_p.scatter(1, prediction[:, None], -torch.inf)
    distance = other_log_p.logsumexp(dim=1)
    if kind == "margin":
        distance = torch.logaddexp(distance, other_log_p.max(dim=1).values)
    return -distance


def log_entropy(log_p: Tensor) -> Tensor:
    """Return the logarithm of the entropy of each row in nats, (N,).

    It is accurate where the largest p is 1 in floating point: with q the sum of the other p, the
    entropy is Σ p_k (r − log p_k) over the other classes, where r = −(1 − q) log(1 − q) / q. At
    least −1e30, for a row with one possible class.
    """
    prediction = log_p.argmax(dim=1, keepdim=True)
    is_other_class = torch.ones_like(log_p, dtype=torch.bool).scatter(1, prediction, False)
    is_other_class = is_other_class & (log_p > _MIN_LOG)
    other_log_p = torch.where(is_other_class, log_p, -1.0)
    q = torch.where(is_other_class, log_p.exp(), 0.0).sum(dim=1, keepdim=True)
    is_small = q < 1e-4
    safe = torch.where(is_small, 0.5, q)
    r = torch.where(is_small, 1 - q / 2 - q * q / 6, -(1 - safe) * torch.log1p(-safe) / safe)
    terms = torch.where(is_other_class, other_log_p + torch.log(r - other_log_p), _MIN_LOG)
    return terms.logsumexp(dim=1)


def score_range(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return the smallest and the largest possible score."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
