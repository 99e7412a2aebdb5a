"""A batch of predictions with its labels, and the quantities that metrics share.

Each quantity is computed once, so twenty metrics take one softmax. The softmax and log p(y) are
computed in one pass over the logits, the others on first use. Shapes: N rows, K classes. Arrays are
checked before, by `recalib.core.arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, log_probabilities
from recalib.stats.groups import row_chunks

#: Different confidences (G,), the place of each row among them (N,), and their rows (G,).
Ties = tuple[Floats, NDArray[np.intp], NDArray[np.intp]]


#: log p(y) is clipped below this, so that it and its square are finite even if float64 logits
#: differ by more than the largest float64.
_LOWEST = -1e100
#: Up to this frequency class 1 of two is rare: pictures then have a square-root scale.
_RARE = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Probabilities (N, K) and labels (N,); make one with `from_logits` or `from_probabilities`.

    Examples
    --------
    >>> from recalib.metrics import Predictions
    >>> Predictions.from_probabilities(np.array([[0.2, 0.8]]), np.array([1])).predicted
    array([1])
    """

    #: (N, K), in the dtype of the input, since edges of bins are rounded to it; at least float32
    #: after a softmax. Exactly 0 for a masked class.
    probabilities: Floats
    #: (N,), integers in [0, K).
    labels: Integers
    #: (N,), the class with the largest score, the first if several tie.
    predicted: Integers
    #: (N,), log p(y), finite.
    label_log_probabilities: NDArray[np.float64]
    #: (N, K), the numbers that rank classes: the logits if given, since underflowing probabilities
    #: tie.
    scores: Floats

    @classmethod
    def from_logits(
        cls, logits: Floats, labels: Integers, *, is_rounded: bool = False
    ) -> Predictions:
        """Return predictions of checked logits (N, K) with labels (N,).

        The softmax has the logits' dtype, float32 for float16 and if it `is_rounded`. log p(y)
        comes from log-softmax, so it is finite if p(y) underflows to 0.
        """
        exact = np.promote_types(logits.dtype, np.float32)
        dtype = np.dtype(np.float32) if is_rounded else exact
        probabilities: Floats = np.empty(logits.shape, dtype)
        logs, predicted = np.empty(len(logits)), np.empty(len(logits), np.int64)
        for rows in row_chunks(logits.shape):
            predicted[rows] = logits[rows].argmax(axis=1)
            top = _at(logits[rows], predicted[rows])[:, None]
            with np.errstate(over="ignore"):  # an overflowing difference is −inf, as it should be
                shifted = np.subtract(logits[rows], top, dtype=exact).astype(dtype, copy=False)
                margins = np.subtract(_at(logits[rows], labels[rows]), top[:, 0], dtype=np.float64)
            powers = np.exp(shifted, out=probabilities[rows])
            total = powers.sum(axis=1, dtype=np.float64)
            # Before the row is normalised: z_y − max − log Σ exp(z − max).
            logs[rows] = np.maximum(margins - np.log(total), _LOWEST)
            powers /= total[:, None].astype(dtype)
        return cls(probabilities, labels, predicted, logs, logits)

    @classmethod
    def from_probabilities(cls, probabilities: Floats, labels: Integers) -> Predictions:
        """Return predictions of checked probabilities (N, K) with labels (N,).

        log p(y) is clipped at log 1e-38, as everywhere in Recalib.
        """
        logs = log_probabilities(_at(probabilities, labels)).astype(np.float64)
        predicted = probabilities.argmax(axis=1)
        return cls(probabilities, labels, predicted, logs, probabilities)

    def take(self, rows: NDArray[np.intp]) -> Predictions:
        """Return the predictions of some rows, by their indices (n,)."""
        probabilities = self.probabilities[rows]
        same = self.scores is self.probabilities
        return Predictions(
            probabilities,
            self.labels[rows],
            self.predicted[rows],
            self.label_log_probabilities[rows],
            probabilities if same else self.scores[rows],
        )

    def of_class(self, k: int) -> Predictions:
        """Return the rows with class k as the predicted class, whether p_k is large or small."""
        return replace(self, predicted=np.full(len(self), k))

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
        """(N,), true if the predicted class is the label."""
        return self.predicted == self.labels

    @property
    def has_rare_class(self) -> bool:
        """Whether these are two classes, and at most a tenth of the labels is class 1."""
        return self.classes == 2 and bool((self.labels == 1).mean() <= _RARE)

    @cached_property
    def ties(self) -> Ties:
        """The rows with equal confidences."""
        return ties_of(self.confidences)


def ties_of(confidences: Floats) -> Ties:
    """Return the ascending different values of (N,), the place of each row, and their rows."""
    return np.unique(confidences, return_inverse=True, return_counts=True)


def _at(values: Floats, columns: Integers) -> Floats:
    return values[np.arange(len(columns)), columns]
