"""Each class against all others: what maps that correct every probability by itself share.

The log-odds of class k in a row are log p_k − log (1 − p_k), p = softmax(z). 1 − p_k is computed as
such where it is at least a half; for the largest logit the odds come from `top_label.split`.

Legend: N rows, K classes.
"""

from __future__ import annotations

from recalib.maps.top_label import split
from recalib.ops.base import Array, Ops

__all__ = ["FARTHEST", "class_odds", "log_pairs", "masked_again"]

#: Log-odds are looked up within this distance of 0: a probability of 1e-26 is as good as 0.
FARTHEST = 60.0


def log_pairs(ops: Ops, logits: Array) -> tuple[Array, Array]:
    """Return log p and log (1 − p), each (N, K); a masked class has −inf and 0."""
    rest = split(ops, logits)
    log_p = ops.log_softmax(logits)
    log_q = ops.log(1.0 - ops.exp(log_p))
    return (
        ops.put(log_p, rest.top, ops.log_sigmoid(rest.odds)),
        ops.put(log_q, rest.top, ops.log_sigmoid(0.0 - rest.odds)),
    )


def class_odds(ops: Ops, logits: Array) -> Array:
    """Return the log-odds of each class (N, K), not under −`FARTHEST`, masked or not."""
    log_p, log_q = log_pairs(ops, logits)
    odds = log_p - log_q
    return ops.where(ops.at_least(odds, -FARTHEST), odds, -FARTHEST)


def masked_again(ops: Ops, logits: Array, scores: Array) -> Array:
    """Return `scores` (N, K) with −inf where `logits` have it."""
    return ops.where(ops.is_masked(logits), -float("inf"), scores)
