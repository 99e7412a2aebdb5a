"""Masks that are numbers: a constant such as −1e9 in the cells of classes that are not possible.

A softmax gives such a cell the probability 0, but a fit that takes it for a logit fails: it sets
the scale of all other logits. `find_mask` finds the constant, and its cells become −inf.

Legend: N rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np

from recalib.core.arrays import Floats, Integers
from recalib.errors import InputError
from recalib.ops import NumpyOps
from recalib.ops.base import Array, Ops

#: A mask is at most this. The logarithm of the least float64 is −745.
_HIGHEST = -999.0
#: The gap above the constant, as a multiple of the range of all other logits. Log-probabilities of
#: a naive Bayes classifier reach far down too, but their gaps are small.
_LEAST_GAP = 10.0
#: Usual masks, as float64 and rounded to float32. One such cell is a mask; others repeat.
_POWERS = [10.0**power for power in range(3, 39)]
_CONSTANTS = {
    *(float(kind(-power)) for power in _POWERS for kind in (np.float32, np.float64)),
    *(float(kind(1 - power)) for power in _POWERS for kind in (np.float32, np.float64)),
    *(float(np.finfo(kind).min) for kind in (np.float16, np.float32, np.float64)),
    -3.3895313892515355e38,  # the least bfloat16
}
_LEAST_COUNT = 3
#: The squares of larger and smaller logits leave the range of float64.
_LARGEST, _SMALLEST = 1e100, 1e-100


class Mask(msgspec.Struct, frozen=True):
    """The rule of masked cells: a logit below `below` stands for −inf.

    A row of which all logits are below stays as it is.
    """

    #: The constant in the rows of the fit.
    value: float
    #: Far below the least other logit, at the nearest halfway to the constant.
    below: float

    def apply(self, ops: Ops, logits: Array) -> Array:
        """Return logits (N, K) with −inf in masked cells."""
        lowest = ops.where(ops.greater_equal(ops.max(logits), self.below), self.below, -np.inf)
        return ops.where(ops.greater_equal(logits, lowest), logits, -np.inf)

    def apply_to(self, logits: Floats) -> Floats:
        """Return an array (N, K), with −inf in masked cells, in its dtype."""
        return self.apply(NumpyOps(logits.dtype.type), logits)

    @property
    def warning(self) -> str:
        """What a user reads."""
        return (
            f"logits of {self.value:.6g} are taken for masks: logits below {self.below:.3g} count "
            "as -inf, in this fit and in predictions; write -inf for masked classes"
        )


@dataclass(frozen=True)
class LowLogits:
    """What `find_mask` needs to know about rows; −inf is left out."""

    #: The least logit, and in how many cells it is.
    least: float
    count: int
    #: The least logit above it, the largest logit, and the least of a label.
    next: float
    largest: float
    label: float

    @classmethod
    def of(cls, logits: Floats, labels: Integers) -> Self:
        """Return the values of checked rows (N, K) with labels (N,)."""
        label = float(logits[np.arange(len(labels)), labels].min())
        largest, least = float(logits.max()), float(logits.min())
        if least > _HIGHEST:
            return cls(least, 0, np.inf, largest, label)
        finite = logits[logits != -np.inf]
        least = float(finite.min())
        next = float(finite.min(initial=np.inf, where=finite > least))
        return cls(least, int(np.count_nonzero(finite == least)), next, largest, label)

    def merge(self, other: LowLogits) -> LowLogits:
        """Return the values of the rows of both."""
        low, high = sorted((self, other), key=lambda part: part.least)
        is_same = low.least == high.least
        return LowLogits(
            least=low.least,
            count=low.count + (high.count if is_same else 0),
            next=min(low.next, high.next if is_same else high.least),
            largest=max(low.largest, high.largest),
            label=min(low.label, high.label),
        )


def find_mask(low: LowLogits) -> Mask | None:
    """Return the rule of masked cells, None if no constant stands for them.

    The least logit is a mask if it is at most −999, no label has it, the gap above it is at least
    ten times the range of all other logits, and it is a usual constant (a power of ten, one more
    than that, the least float of a type) or in three cells or more. The rule begins at −999 and ten
    times the range below all other logits, so other constants that are served are masks too.

    Raises
    ------
    InputError: the largest absolute value of the other logits is below 1e-100 or above 1e100.
    """
    value, range = low.least, max(low.largest - low.next, 1.0)
    is_constant = low.count >= _LEAST_COUNT or value in _CONSTANTS
    is_alone = value <= _HIGHEST and low.label > value and low.next < np.inf
    is_mask = is_constant and is_alone and low.next - value >= _LEAST_GAP * range
    size = max(abs(low.next if is_mask else value), abs(low.largest))
    if size and not _SMALLEST <= size <= _LARGEST:
        found = f"a largest absolute value of {size:.3g}"
        raise InputError("logits", found=found, accepted=f"{_SMALLEST:g} to {_LARGEST:g}")
    if not is_mask:
        return None
    halfway = value / 2 + low.next / 2
    below = max(halfway, min(_HIGHEST, low.next - _LEAST_GAP * range))
    # float32, as in served graphs, holds the threshold.
    return Mask(value, max(below, float(np.finfo(np.float32).min)))


def mask_constants(logits: Floats, labels: Integers) -> tuple[Floats, Mask | None]:
    """Return checked rows with −inf for constants that stand for it, and the rule, if any."""
    mask = None
    while (found := find_mask(LowLogits.of(logits, labels))) is not None:
        mask, logits = found, found.apply_to(logits)
    return logits, mask
