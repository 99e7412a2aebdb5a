"""The top label against the rest, for maps that correct only the confidence.

The largest logit of a row is lowered to the second largest, y, and r is the softmax of the result,
in which r_y occurs twice. So the others have the weight 1 − r_y, at least a half, and the log-odds
of the prediction are s = z₍₁₎ − y + log r_y − log (1 − r_y), in nats. With corrected log-odds G,
the confidence is 1 / (1 + exp(−G)), and the other classes keep their ratios. This resolves
confidences close to 1, because it never computes 1 − p of a p near 1.

Legend: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from recalib.ops.base import Array, Ops

#: The log-odds of the prediction in a row with a single unmasked class.
_SINGLE_CLASS_ODDS = 1e38
#: Corrected log-odds are clipped here: the others keep 1.8e-35, and no power overflows.
_MAX_ODDS = 80.0
#: The smallest distance of the prediction above the next class, in nats: less is lost in float32.
_MIN_MARGIN = 1e-4


@dataclass(frozen=True)
class TopLabelSplit:
    """The top labels and the rest of a batch of rows."""

    #: (N, 1): the index of the largest logit, the first if several tie.
    top: Array
    #: (N, K): the logits, the largest lowered to the second largest.
    lowered: Array
    #: (N, K): the softmax of `lowered`.
    shares: Array
    #: (N, 1): the sum of `shares` without the prediction's.
    weight: Array
    #: (N, 1): the log-odds of the prediction in `lowered`.
    level: Array
    #: (N, 1): true if only the predicted class is unmasked.
    single_class: Array
    #: (N, 1): s, the log-odds of the prediction.
    odds: Array


def split_top_label(ops: Ops, logits: Array) -> TopLabelSplit:
    """Split the rows of `logits` (N, K); −inf masks a class."""
    top, largest, second = ops.top_two(logits)
    single_class = ops.is_masked(second)
    lowered = ops.put_along(logits, top, ops.where(single_class, largest, second))
    parts = ops.softmax(lowered)
    confidence = ops.take_along(parts, top)
    weight = ops.where(single_class, 1.0, 1.0 - confidence)
    level = ops.log(confidence) - ops.log(weight)
    odds = ops.where(single_class, _SINGLE_CLASS_ODDS, largest - second + level)
    return TopLabelSplit(top, lowered, parts, weight, level, single_class, odds)


def top_label_probabilities(ops: Ops, parts: TopLabelSplit, odds: Array) -> Array:
    """Return probabilities (N, K) in which the prediction has log-odds `odds` (N, 1).

    The log-odds are raised if the prediction would change otherwise.
    """
    power = ops.exp(_clip_odds(ops, parts, odds))
    # Scatter before scaling: onnxruntime then writes one number instead of copying the array.
    raised = ops.put_along(parts.shares, parts.top, power * parts.weight)
    return raised * (1.0 / ((1.0 + power) * parts.weight))


def top_label_logits(ops: Ops, parts: TopLabelSplit, odds: Array) -> Array:
    """Return logits (N, K) of `top_label_probabilities`, exact for small probabilities."""
    lowered = ops.take_along(parts.lowered, parts.top)
    return ops.put_along(
        parts.lowered, parts.top, lowered - parts.level + _clip_odds(ops, parts, odds)
    )


def _clip_odds(ops: Ops, parts: TopLabelSplit, odds: Array) -> Array:
    least = parts.level + _MIN_MARGIN
    clipped = _MAX_ODDS - ops.relu(_MAX_ODDS - least - ops.relu(odds - least))
    return ops.where(parts.single_class, _MAX_ODDS, clipped)
