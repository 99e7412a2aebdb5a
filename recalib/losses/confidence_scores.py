"""Confidence scores, for losses that rank rows by confidence."""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import torch
from torch import Tensor

from recalib.losses.base import entropy, is_transformed, predict, split_rows, take_column

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
    top, prediction = predict(logits)
    if kind == "negative_entropy":
        return -log_entropy(logits, top, prediction)
    log_p = logits.log_softmax(dim=1)
    other_log_p = log_p.scatter(1, prediction[:, None], -torch.inf)
    distance = other_log_p.logsumexp(dim=1)
    if kind == "margin":
        distance = torch.logaddexp(distance, other_log_p.max(dim=1).values)
    return -distance


def log_entropy(logits: Tensor, top: Tensor, prediction: Tensor) -> Tensor:
    """Return the logarithm of the entropy of each row in nats, (N,).

    It is accurate where the largest p is 1 in floating point. At least −1e30, for a row with one
    possible class.

    Parameters
    ----------
    top, prediction: the largest logit of each row and its class, of `predict`, (N,) each.
    """
    if is_transformed(logits):
        return _log_entropy(logits, take_column(logits, prediction), prediction)[0]
    result, _ = _LogEntropy.apply(logits, top, prediction)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _LogEntropy(torch.autograd.Function):
    """The logarithm of the entropy, of parts of the rows; it keeps no other array of classes.

    With t_k = z_k − z_ŷ, s = Σ_{k≠ŷ} exp t_k, the entropy is
    (Σ_{k≠ŷ} exp(t_k) (log(1 + s) − t_k) + log(1 + s)) / (1 + s): all terms are positive.
    """

    @staticmethod
    def forward(logits: Tensor, top: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Return also log(1 + s), (N,)."""
        parts = [_log_entropy(*part) for part in split_rows(logits, top, prediction)]
        log_h, log_rest = map(torch.cat, zip(*parts, strict=True))
        return log_h, log_rest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # for a second derivative
            z, _, place, *_ = ctx.saved_tensors
            value = _log_entropy(z, take_column(z, place), place)[0]
            return *torch.autograd.grad(value, z, gradient, create_graph=True), None, None
        slopes = torch.empty_like(ctx.saved_tensors[0])
        arrays = (slopes, gradient, *ctx.saved_tensors)
        for out, g, z, top, place, log_h, rest in split_rows(*arrays):
            log_p = (z - top[:, None]).sub_(rest[:, None])
            terms = (log_p - log_h[:, None]).exp_()
            terms.mul_(log_p.clamp_min_(_MIN_LOG).add_(log_h.exp()[:, None]))
            # Rows of slopes have the sum 0; that of the largest p would lose its digits.
            terms.scatter_(1, place[:, None], 0.0)
            terms.scatter_(1, place[:, None], -terms.sum(dim=1, keepdim=True))
            torch.mul(terms, -g[:, None], out=out)
        return slopes, None, None


def _log_entropy(logits: Tensor, top: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    others = (logits - top[:, None]).clamp_min_(_MIN_LOG)
    others = others.scatter(1, prediction[:, None], _MIN_LOG)
    second = others.amax(dim=1)
    shares = (others - second[:, None]).exp_()
    total = shares.sum(dim=1)
    s = second.exp() * total
    log_rest = torch.log1p(s)
    ratio = torch.where(s > 0, log_rest / torch.where(s > 0, s, 1.0), 1.0)
    terms = total * (log_rest + ratio) - (shares * others).sum(dim=1)
    return (second - log_rest + terms.log()).clamp_min(_MIN_LOG), log_rest


def score_range(kind: Confidence, classes: int) -> tuple[float, float]:
    """Return the smallest and the largest possible score."""
    return (-math.log(classes), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
