"""Each class against all others: what maps that correct every probability by itself share.

The log-odds of class k in a row are log p_k − log (1 − p_k), p = softmax(z). 1 − p_k is computed as
such where it is at least a half; for the largest logit it is the sum of the other p.

Legend: N rows, K classes.
"""

from __future__ import annotations

from recalib.ops.base import Array, Ops

__all__ = ["FARTHEST", "class_odds", "log_pairs", "masked_again"]

#: Log-odds are looked up within this distance of 0: a probability of 1e-26 is as good as 0.
FARTHEST = 60.0
#: The least that the others of a row have together: log-odds of 69, beyond `FARTHEST`.
_LEAST = 1e-30


def log_pairs(ops: Ops, logits: Array) -> tuple[Array, Array]:
    """Return log p and log (1 − p), each (N, K); a masked class has −inf and 0."""
    log_p = ops.log_softmax(logits)
    p, top = ops.exp(log_p), ops.argmax(logits)
    others = ops.put_along(p, top, 0.0)
    rest = ops.clip_min(ops.sum(others), _LEAST)
    return log_p, ops.log(ops.put_along(1.0 - others, top, rest))


def class_odds(ops: Ops, logits: Array) -> Array:
    """Return the log-odds of each class (N, K), not under −`FARTHEST`, masked or not."""
    log_p, log_q = log_pairs(ops, logits)
    return ops.clip_min(log_p - log_q, -FARTHEST)


def masked_again(ops: Ops, logits: Array, scores: Array) -> Array:
    """Return `scores` (N, K) with −inf where `logits` have it."""
    return ops.where(ops.is_masked(logits), -float("inf"), scores)
