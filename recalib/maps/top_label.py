"""The top label against the rest: what maps that correct only the confidence share.

The logits z of a row, less the largest, are taken apart into that one, which is 0, and the rest.
The odds of the prediction are s = −log Σ_rest exp(z), in nats. With corrected odds G in their
place, the confidence becomes 1 / (1 + exp(−G)), and the others share what is left as before: all
that changes is one logit. Nothing is computed as 1 − p, so that confidences a hair under 1 stay
apart.

Legend: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from recalib.ops.base import Array, Ops

__all__ = ["Rest", "join", "split"]

#: What stands at the place of the largest logit in the rest: so far below any logit that it has
#: no weight, and yet finite, so that a row with a single unmasked class is no special case: its
#: odds are some 1e38, and its probability 1.
_NONE = -1e38
#: By how much the prediction stays above the next class, in nats, and relative to its logit: less
#: would be lost where a float32 is rounded.
_ABOVE, _ABOVE_RELATIVE = 1e-4, 1e-6


@dataclass(frozen=True)
class Rest:
    """A batch of rows, taken apart."""

    #: (N, 1): the place of the largest logit, the first of equals.
    top: Array
    #: (N, K): the logits less the largest, without it.
    logits: Array
    #: (N, 1): the second largest logit.
    second: Array
    #: (N, 1): log Σ_rest exp(z).
    total: Array
    #: (N, 1): s, the log-odds of the prediction.
    odds: Array


def split(ops: Ops, logits: Array) -> Rest:
    """Return the rows of `logits` (N, K), taken apart; −inf masks a class."""
    top = ops.first_greatest(logits)
    rest = ops.put(logits - ops.take(logits, top), top, _NONE)
    second = ops.greatest(rest)
    # The largest share of the rest is exp(second − total): a softmax is the fastest log Σ exp.
    total = second - ops.log(ops.greatest(ops.softmax(rest)))
    return Rest(top, rest, second, total, 0.0 - total)


def join(ops: Ops, rest: Rest, odds: Array) -> Array:
    """Return logits (N, K) in which the prediction has log-odds `odds` (N, 1), or more.

    More where it would otherwise fall behind the next class: no prediction changes.
    """
    least = rest.second * (1.0 - _ABOVE_RELATIVE) + _ABOVE  # no logit is above 0 here
    wanted = rest.total + odds
    return ops.put(rest.logits, rest.top, least + ops.relu(wanted - least))
