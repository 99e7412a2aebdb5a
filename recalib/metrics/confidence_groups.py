"""Rows in groups of ascending confidence: tied rows, or the cells of a fine histogram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.predictions import Ties
from recalib.stats.cells import cell_edges
from recalib.stats.groups import group_sums
from recalib.stats.sums import Cells, Moments


@dataclass(frozen=True, eq=False)
class ConfidenceGroups:
    """N rows in G groups of ascending confidence; arrays are (G,).

    A group is either all rows of one confidence (`from_rows`), so the order of rows in a file does
    not matter, or the rows in a cell of a fine histogram (`from_cells`). Metrics treat the rows
    of a group as tied. For a cell this is an approximation, whose error they bound.
    """

    #: Σw, the number of rows without weights; whole weights count repeated rows, as integers.
    counts: NDArray[Any]
    #: Σwp, Σwp², Σwy and Σwpy.
    confidence: NDArray[Any]
    confidence_squared: NDArray[Any]
    correct: NDArray[Any]
    confidence_correct: NDArray[Any]
    #: The number of rows.
    rows: NDArray[np.int64]
    #: The same sums as above with w² for w.
    squared: Moments
    #: The largest difference of confidences within a group.
    widths: Numbers

    @classmethod
    def from_rows(
        cls, ties: Ties, correct: NDArray[np.bool_], weights: Numbers | None = None
    ) -> ConfidenceGroups:
        """Return groups of tied rows from their ties, correctness and weights (N,)."""
        values, group, rows = ties
        p, rows, size = values.astype(np.float64), rows.astype(np.int64), len(values)

        def moments(w: Numbers | None) -> Moments:
            counts = rows if w is None else group_sums(group, w, size)
            hits = group_sums(group, correct if w is None else w * correct, size)
            return Moments(counts, counts * p, counts * p**2, hits, hits * p)

        sums = squared = moments(weights)
        if weights is not None:
            squared = moments(weights**2)
            if (weights == np.rint(weights)).all():
                sums = sums.with_whole_weight()
        return cls(*sums, rows, squared, np.zeros(size))

    @classmethod
    def from_cells(cls, state: Cells) -> ConfidenceGroups:
        """Return the cells of `state` that hold rows."""
        at, sums = state.filled, state.moments
        if not state.fractional:
            sums = sums.with_whole_weight()
        widths = np.diff(cell_edges())[at]
        return cls(*sums.select(at), state.count[at], state.squared.select(at), widths)

    @property
    def moments(self) -> Moments:
        """The sums with weights w."""
        sums = self.confidence, self.confidence_squared, self.correct, self.confidence_correct
        return Moments(self.counts, *sums)

    @cached_property
    def ends(self) -> NDArray[np.int64] | Numbers:
        """The number of rows before each group, and N; (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def means(self) -> Numbers:
        """The mean confidence of each group."""
        return self.confidence / self.counts

    @property
    def spreads(self) -> Numbers:
        """Σ(p − p̄)² of each group."""
        return np.maximum(self.confidence_squared - self.confidence * self.means, 0)

    def hits_before(self, rows: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Return the least and the largest possible Σy of the first `rows` rows, for each of them.

        The rows of a group may be in any order.
        """
        group = np.searchsorted(self.ends[1:-1], rows, side="right")
        n, s = self.counts[group], self.correct[group]
        before = np.concatenate([[0.0], np.cumsum(self.correct)])[group]
        part = rows - self.ends[group]
        return before + np.maximum(0, part - (n - s)), before + np.minimum(part, s)
