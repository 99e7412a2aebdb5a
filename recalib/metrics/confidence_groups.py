"""Rows in groups of ascending confidence: tied rows, or the cells of a fine histogram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.metrics.fine_histogram import cell_edges
from recalib.metrics.predictions import Ties

Vector = NDArray[np.float64]


class _Cells(Protocol):
    """Sums in the cells of a fine histogram: a `FineHistogram`, or `WeightedCells`."""

    @property
    def filled(self) -> NDArray[np.bool_]: ...
    @property
    def count(self) -> NDArray[np.int64] | Vector: ...
    @property
    def confidence(self) -> Vector: ...
    @property
    def correct(self) -> Vector: ...
    @property
    def confidence_squared(self) -> Vector: ...
    @property
    def confidence_correct(self) -> Vector: ...


@dataclass(frozen=True, eq=False)
class ConfidenceGroups:
    """N rows in G groups of ascending confidence; arrays are (G,).

    A group is either all rows of one confidence (`from_rows`), so the order of rows in a file does
    not matter, or the rows in a cell of a fine histogram (`from_histogram`). Metrics treat the rows
    of a group as tied. For a cell this is an approximation, whose error they bound.
    """

    #: Rows, or their weight.
    counts: NDArray[np.int64] | Vector
    #: Σp, Σy, Σp² and Σpy.
    confidence: Vector
    correct: Vector
    confidence_squared: Vector
    confidence_correct: Vector
    #: The largest difference of confidences within a group.
    widths: Vector

    @classmethod
    def from_rows(cls, ties: Ties, correct: NDArray[np.bool_]) -> ConfidenceGroups:
        """Return groups of tied rows from their ties and correctness (N,)."""
        values, group, counts = ties
        hits = np.bincount(group, correct, len(values)).astype(np.float64, copy=False)
        return cls._of_ties(values, counts.astype(np.int64), hits)

    @classmethod
    def from_weights(
        cls, ties: Ties, correct: NDArray[np.bool_], weights: Vector
    ) -> ConfidenceGroups:
        """Return groups of tied rows with weights (N,); whole weights count repeated rows."""
        values, group, _ = ties
        counts = np.bincount(group, weights).astype(np.float64, copy=False)
        hits = np.bincount(group, weights * correct).astype(np.float64, copy=False)
        if (weights == np.rint(weights)).all() and weights.sum() < 2**53:
            return cls._of_ties(values, np.rint(counts).astype(np.int64), hits)
        return cls._of_ties(values, counts, hits)

    @classmethod
    def _of_ties(
        cls, values: Floats, counts: NDArray[np.int64] | Vector, hits: Vector
    ) -> ConfidenceGroups:
        p = values.astype(np.float64)
        return cls(counts, counts * p, hits, counts * p**2, hits * p, np.zeros(len(p)))

    @classmethod
    def from_histogram(cls, state: _Cells) -> ConfidenceGroups:
        """Return the cells of `state` that hold rows."""
        at = state.filled
        sums = (
            state.confidence,
            state.correct,
            state.confidence_squared,
            state.confidence_correct,
            np.diff(cell_edges()),
        )
        return cls(state.count[at], *(values[at] for values in sums))

    @cached_property
    def ends(self) -> NDArray[np.int64] | Vector:
        """The number of rows before each group, and N; (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def means(self) -> Vector:
        """The mean confidence of each group."""
        means: Vector = self.confidence / self.counts
        return means

    @property
    def spreads(self) -> Vector:
        """Σ(p − p̄)² of each group."""
        return np.maximum(self.confidence_squared - self.confidence * self.means, 0)

    @property
    def calibrated_squares(self) -> Vector:
        """Σp(1 − p) of each group."""
        return np.maximum(self.confidence - self.confidence_squared, 0)

    @property
    def squared_residual(self) -> float:
        """The mean of (y − p)² over all rows."""
        squares = self.correct - 2 * self.confidence_correct + self.confidence_squared
        return max(float(squares.sum()), 0.0) / float(self.ends[-1])

    def hits_before(self, rows: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Return the least and the largest possible Σy of the first `rows` rows, for each of them.

        The rows of a group may be in any order.
        """
        group = np.searchsorted(self.ends[1:-1], rows, side="right")
        n, s = self.counts[group], self.correct[group]
        before = np.concatenate([[0.0], np.cumsum(self.correct)])[group]
        part = rows - self.ends[group]
        return before + np.maximum(0, part - (n - s)), before + np.minimum(part, s)
