"""One-versus-rest log-odds, for maps that correct each probability separately.

The log-odds of class k in a row are log p_k − log (1 − p_k), p = softmax(z). 1 − p_k is
computed as a difference, except for the largest logit, where it is the sum of the other p.

Legend: N rows, K classes.
"""

from __future__ import annotations

from recalib.ops.base import Array, Ops

#: Log-odds are clipped to ± this: a probability of 1e-26.
MAX_LOG_ODDS = 60.0
#: The smallest sum of the other probabilities: log-odds of 69, above `MAX_LOG_ODDS`.
_MIN_COMPLEMENT = 1e-30


def log_p_and_complement(ops: Ops, logits: Array) -> tuple[Array, Array]:
    """Return log p and log (1 − p), each (N, K); a masked class has −inf and 0."""
    log_p = ops.log_softmax(logits)
    p, top = ops.exp(log_p), ops.argmax(logits)
    other_p = ops.put_along(p, top, 0.0)
    complement = ops.clip_min(ops.sum(other_p), _MIN_COMPLEMENT)
    return log_p, ops.log(ops.put_along(1.0 - other_p, top, complement))


def class_log_odds(ops: Ops, logits: Array) -> Array:
    """Return the log-odds of each class (N, K), at least −`MAX_LOG_ODDS`, also if masked."""
    log_p, log_q = log_p_and_complement(ops, logits)
    return ops.clip_min(log_p - log_q, -MAX_LOG_ODDS)


def restore_mask(ops: Ops, logits: Array, scores: Array) -> Array:
    """Return `scores` (N, K) with −inf where `logits` are −inf."""
    return ops.where(ops.is_masked(logits), -float("inf"), scores)
