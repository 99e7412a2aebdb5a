"""Confidence scores, for losses that rank rows by confidence."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recalib.losses.base import entropy, take_column

#: The maximum softmax probability; its margin over the second; the negative entropy in nats.
#: Paper 002, appendix A, where the entropy is written with logits z instead of probabilities p.
Confidence = Literal["msp", "margin", "negative_entropy"]


#: In place of log 0, whose derivative is not finite.
_MIN_LOG = -1e30
#: Rows that are computed at once: they stay in the cache of a processor.
_ROWS = 4096


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

    It is accurate where the largest p is 1 in floating point. At least −1e30, for a row with one
    possible class.
    """
    result: Tensor = _LogEntropy.apply(log_p)  # type: ignore[no-untyped-call]
    return result


class _LogEntropy(torch.autograd.Function):
    """The logarithm of the entropy, of parts of the rows; it keeps its arguments alone.

    With t_k = log p_k − log p_ŷ, s = Σ_{k≠ŷ} exp t_k, the entropy is
    (Σ_{k≠ŷ} exp(t_k) (log(1 + s) − t_k) + log(1 + s)) / (1 + s): all terms are positive.
    """

    @staticmethod
    def forward(log_p: Tensor) -> Tensor:
        return torch.cat([_log_entropy(rows) for rows in torch.split(log_p, _ROWS)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        parts = []
        for log_p, log_h in zip(*(saved.split(_ROWS) for saved in ctx.saved_tensors), strict=True):
            log_h, place = log_h[:, None], log_p.argmax(dim=1, keepdim=True)
            slopes = (log_p - log_h).exp_().mul_(log_p.clamp_min(_MIN_LOG) + log_h.exp()).neg_()
            # Rows of slopes have the sum 0; that of the largest p would lose its digits.
            slopes.scatter_(1, place, 0.0)
            parts.append(slopes.scatter_(1, place, -slopes.sum(dim=1, keepdim=True)))
        return torch.cat(parts).mul_(gradient[:, None])


def _log_entropy(log_p: Tensor) -> Tensor:
    top, place = log_p.max(dim=1, keepdim=True)
    others = (log_p - top).clamp_min_(_MIN_LOG).scatter_(1, place, _MIN_LOG)
    second = others.amax(dim=1, keepdim=True)
    shares = (others - second).exp_().scatter_(1, place, 0.0)
    total = shares.sum(dim=1)
    second = second[:, 0]
    s = second.exp() * total
    log_rest = torch.log1p(s)
    ratio = torch.where(s > 0, log_rest / torch.where(s > 0, s, 1.0), 1.0)
    terms = total * (log_rest + ratio) - shares.mul_(others).sum(dim=1)
    return (second - log_rest + terms.log()).clamp_min(_MIN_LOG)


def score_range(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return the smallest and the largest possible score."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
