"""One-versus-rest log-odds, for maps that correct each probability separately.

The log-odds of class k in a row are log p_k − log (1 − p_k), p = softmax(z). 1 − p_k is
computed as a difference, except for the largest logit, where it is the sum of the other p.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from recalib.maps.base import Link, Map, Parameter
from recalib.ops.base import Array, Ops

#: Log-odds are clipped to ± this: a probability of 1e-26.
MAX_LOG_ODDS = 60.0
#: The smallest sum of the other probabilities: log-odds of 69, above `MAX_LOG_ODDS`.
_MIN_COMPLEMENT = 1e-30


@dataclass(frozen=True)
class ClassCurves(Map):
    """A map of each class against the rest: curves of the log-odds under softmax(z / T)."""

    #: Of the numbers of each class, (K,), by name.
    links: ClassVar[Mapping[str, Link]]

    preserves_accuracy: ClassVar[bool] = False
    preserves_order: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {"temperature": Parameter((), "log"), **numbers_of_columns(self.links, classes)}


def numbers_of_columns(links: Mapping[str, Link], columns: int) -> dict[str, Parameter]:
    """Return the parameters with a number for each of K = `columns`."""
    return {name: Parameter((columns,), link, (0,)) for name, link in links.items()}


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
