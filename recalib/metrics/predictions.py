"""One batch of predictions with its labels, and the pieces that metrics share.

Each piece is computed once and kept, so that twenty metrics take one softmax: the softmax and
log p(y) at once, since they share a pass over the logits; the rest when first asked for.
Shapes: N rows, K classes. Arrays come checked, from `recalib.arrays`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers, log_probabilities

__all__ = ["Predictions", "row_chunks"]

#: Elements of one chunk of rows: a softmax makes several passes, which cost a third of the time
#: when what they read is still in the processor's cache.
_CHUNK = 65_536
#: Below this, log p(y) is clipped. No logits of a network come near it; those of float64 could
#: differ by more than float64 holds, and squares of what they give shall be finite too.
_LOWEST = -1e100


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Probabilities (N, K) and labels (N,); make one by `from_logits` or `from_probabilities`."""

    #: (N, K), of the dtype they came in, since edges of bins are rounded to it; a softmax gives
    #: at least float32. Exactly 0 for a masked class.
    probabilities: Floats
    #: (N,), integers in [0, K).
    labels: Integers
    #: (N,), the class with the largest score, the first of them where several tie.
    predicted: Integers
    #: (N,), log p(y), finite.
    label_log_probabilities: NDArray[np.float64]
    #: (N, K), what classes are ranked by: the logits where there are some, since probabilities tie
    #: where they underflow.
    scores: Floats

    @classmethod
    def from_logits(cls, logits: Floats, labels: Integers) -> Predictions:
        """Return predictions of checked logits (N, K) with labels (N,).

        Softmax in the logits' dtype, float16 widened to float32; log p(y) by log-softmax, so that
        a probability that underflows to 0 still has its logarithm.
        """
        dtype = np.promote_types(logits.dtype, np.float32)
        probabilities: Floats = np.empty(logits.shape, dtype)
        logs = np.empty(len(logits))
        for rows in row_chunks(logits.shape):
            top = logits[rows].max(axis=1, keepdims=True)
            with np.errstate(over="ignore"):  # a difference beyond the dtype is −inf, rightly
                shifted = np.subtract(logits[rows], top, dtype=dtype)
                own = np.subtract(_at(logits[rows], labels[rows]), top[:, 0], dtype=np.float64)
            powers = np.exp(shifted, out=probabilities[rows])
            total = powers.sum(axis=1, dtype=np.float64)
            # Before the row is normalised: z_y − max − log Σ exp(z − max).
            logs[rows] = np.maximum(own - np.log(total), _LOWEST)
            powers /= total[:, None].astype(dtype)
        predicted = logits.argmax(axis=1)
        return cls(probabilities, labels, predicted, logs, logits)

    @classmethod
    def from_probabilities(cls, probabilities: Floats, labels: Integers) -> Predictions:
        """Return predictions of checked probabilities (N, K) with labels (N,).

        log p(y) is clipped at log 1e-38, like everywhere else.
        """
        logs = log_probabilities(_at(probabilities, labels)).astype(np.float64)
        predicted = probabilities.argmax(axis=1)
        return cls(probabilities, labels, predicted, logs, probabilities)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """K."""
        return int(self.probabilities.shape[1])

    @cached_property
    def confidences(self) -> Floats:
        """(N,), the probability of the predicted class."""
        return _at(self.probabilities, self.predicted)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(N,), whether the predicted class is the label."""
        correct: NDArray[np.bool_] = self.predicted == self.labels
        return correct


def row_chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of rows that together cover (N, K), each small enough for the cache."""
    step = max(1, _CHUNK // shape[1])
    return (slice(start, start + step) for start in range(0, shape[0], step))


def _at(values: Floats, columns: Integers) -> Floats:
    picked: Floats = values[np.arange(len(columns)), columns]
    return picked
