"""An evenly spaced sample of rows that arrive in parts.

Each fragment gives a sample of its rows, from which the sample of all is drawn. Fragments give rows
by their size: of one large file among many small ones, nearly all rows of the sample are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.files.fragments import Fragment

Weights = Numbers | None

#: Rows of a sample, and the numbers in it.
_SAMPLE_ROWS = 20_000
_SAMPLE_NUMBERS = 4_000_000
#: A fragment gives at least a part of the sample of 1 in this number, and more by its size: twice
#: its share, since the bytes of a row differ with formats and compression.
_MAX_SHARES = 16
_SIZE_FACTOR = 2.0


def max_sample_rows(classes: int, share: float = 1.0) -> int:
    """Return the rows of a sample, or of the share of it that a fragment gives, at least 1."""
    return max(1, int(share * min(_SAMPLE_ROWS, _SAMPLE_NUMBERS // classes)))


def sample_shares(fragments: Sequence[Fragment]) -> list[float]:
    """Return the share of the sample that each fragment gives at most, in (0, 1].

    The sum may exceed 1. Without the sizes of files, shares are equal.
    """
    least = 1 / min(_MAX_SHARES, len(fragments))
    total = max(1, sum(fragment.size for fragment in fragments))
    return [min(1.0, max(least, _SIZE_FACTOR * part.size / total)) for part in fragments]


@dataclass
class _Part:
    """Rows that stand for multiples of `step` in the stream, from `first`."""

    first: int
    step: int
    logits: Floats
    labels: Integers
    weights: Weights


class RowSample:
    """Every `step`-th row of a stream, in memory of at most twice `max_rows` rows.

    The step is a power of two. It doubles when there are too many rows.

    Parameters
    ----------
    max_rows: rows of the sample, at least 1.
    """

    def __init__(self, max_rows: int) -> None:
        self.step = 1
        self._max_rows = max_rows
        self._rows = self._size = 0
        self._parts: list[_Part] = []

    def add(
        self,
        logits: Floats,
        labels: Integers,
        weights: Weights = None,
        *,
        rows: int,
        step: int = 1,
    ) -> None:
        """Add the next rows of the stream.

        Parameters
        ----------
        logits, labels, weights: (n, K), (n,) and (n,): every `step`-th row, from the first. Either
            all parts of the stream have weights or none.
        rows: the number of rows that these stand for.
        """
        # Each multiple of the step belongs to the part in whose rows it is.
        first = -(-self._rows // step) * step
        self._rows += rows
        count = max(0, -(-(self._rows - first) // step))
        weights = None if weights is None else weights[:count]
        part = _Part(first, step, logits[:count], labels[:count], weights)
        if step > self.step:
            self._thin(step)
        part = self._thin_part(part)
        self._parts.append(part)
        self._size += len(part.labels)
        while self._size > 2 * self._max_rows:
            self._thin(2 * self.step)

    def candidates(self) -> tuple[Floats, Integers, Weights]:
        """Return every `step`-th row, with its weight or None."""
        logits = np.concatenate([part.logits for part in self._parts])
        labels = np.concatenate([part.labels for part in self._parts])
        weights = [part.weights for part in self._parts if part.weights is not None]
        return logits, labels, np.concatenate(weights) if weights else None

    def rows(self) -> tuple[Floats, Integers, Weights]:
        """Return the sample: `max_rows` of these rows, evenly spaced, or all if they are fewer."""
        logits, labels, weights = self.candidates()
        if len(labels) <= self._max_rows:
            return logits, labels, weights
        index = np.arange(self._max_rows) * len(labels) // self._max_rows
        return logits[index], labels[index], None if weights is None else weights[index]

    def _thin(self, step: int) -> None:
        self.step = step
        thinned = [self._thin_part(part) for part in self._parts]
        # Fragments of a few rows may have none of them; the first part has the row 0.
        self._parts = [part for part in thinned if len(part.labels)]
        self._size = sum(len(part.labels) for part in self._parts)

    def _thin_part(self, part: _Part) -> _Part:
        """Return the rows that stand for multiples of the sample's step."""
        ratio = self.step // part.step
        start = -(part.first // part.step) % ratio
        # Copies: a view would keep all rows in memory.
        return _Part(
            part.first + start * part.step,
            self.step,
            part.logits[start::ratio].copy(),
            part.labels[start::ratio].copy(),
            None if part.weights is None else part.weights[start::ratio].copy(),
        )
