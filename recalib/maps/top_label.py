"""The top label against the rest: what maps that correct only the confidence share.

The largest logit of a row is lowered to the next one, y, and shares are r = softmax of what is
then there, r_y twice among them. So 1 − r_y is the weight of the rest, at least a half, and the
odds of the prediction are s = z₍₁₎ − y + log r_y − log (1 − r_y), in nats. With corrected odds G in
their place, the confidence becomes 1 / (1 + exp(−G)), and the others share what is left as before.
Confidences a hair under 1 stay apart: no 1 − p is computed of a p near 1.

Legend: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from recalib.ops.base import Array, Ops

__all__ = ["Rest", "join", "shares", "split"]

#: The odds of the prediction in a row with a single unmasked class.
_ALONE = 1e38
#: Corrected odds are cut off here: 1.8e-35 is left for the others, and no power overflows.
_SUREST = 80.0
#: By how much the prediction stays above the next class, in nats: less would be lost where a
#: float32 is rounded.
_ABOVE = 1e-4


@dataclass(frozen=True)
class Rest:
    """A batch of rows, taken apart."""

    #: (N, 1): the place of the largest logit, the first of equals.
    top: Array
    #: (N, K): the logits, the largest lowered to the next.
    lowered: Array
    #: (N, K): the softmax of those.
    shares: Array
    #: (N, 1): the part of `shares` that is not the prediction's.
    weight: Array
    #: (N, 1): the log-odds of the prediction if it were as low as the next class.
    level: Array
    #: (N, 1): where no class is unmasked besides the prediction.
    alone: Array
    #: (N, 1): s, the log-odds of the prediction.
    odds: Array


def split(ops: Ops, logits: Array) -> Rest:
    """Return the rows of `logits` (N, K), taken apart; −inf masks a class."""
    top, largest, second = ops.top_two(logits)
    alone = ops.is_masked(second)
    lowered = ops.put_along(logits, top, ops.where(alone, largest, second))
    parts = ops.softmax(lowered)
    own = ops.take_along(parts, top)
    weight = ops.where(alone, 1.0, 1.0 - own)
    level = ops.log(own) - ops.log(weight)
    odds = ops.where(alone, _ALONE, largest - second + level)
    return Rest(top, lowered, parts, weight, level, alone, odds)


def shares(ops: Ops, rest: Rest, odds: Array) -> Array:
    """Return probabilities (N, K) in which the prediction has log-odds `odds` (N, 1), or more.

    More where it would otherwise fall behind the next class: no prediction changes.
    """
    power = ops.exp(_kept(ops, rest, odds))
    # Put before it is scaled: onnxruntime then writes the one number instead of copying all.
    raised = ops.put_along(rest.shares, rest.top, power * rest.weight)
    return raised * (1.0 / ((1.0 + power) * rest.weight))


def join(ops: Ops, rest: Rest, odds: Array) -> Array:
    """Return logits (N, K) whose softmax is `shares`, for the logarithms of small probabilities."""
    lowered = ops.take_along(rest.lowered, rest.top)
    return ops.put_along(rest.lowered, rest.top, lowered - rest.level + _kept(ops, rest, odds))


def _kept(ops: Ops, rest: Rest, odds: Array) -> Array:
    least = rest.level + _ABOVE
    kept = _SUREST - ops.relu(_SUREST - least - ops.relu(odds - least))
    return ops.where(rest.alone, _SUREST, kept)
