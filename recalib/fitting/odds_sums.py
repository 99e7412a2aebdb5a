"""Rows and hits by log-odds, summed over parts of the data: what fits of a curve take.

Legend: G groups of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import Groups, group_starts
from recalib.stats.groups import group_sums


@dataclass(frozen=True)
class Resolution:
    """How many sums are kept."""

    #: More distinct log-odds than this are summed in cells.
    max_exact: int
    #: A power of two. A probability p changes by at most p (1 − p) / `cells_per_nat` in a cell.
    cells_per_nat: int


#: Of the top label, and of each of many classes.
OF_TOP_LABEL = Resolution(1 << 20, 4096)
OF_CLASSES = Resolution(1 << 16, 1024)


@dataclass(frozen=True)
class OddsSums:
    """Sums of rows by their log-odds: exact, or in cells of equal width when there are many.

    A cell has the mean log-odds of its rows.
    """

    #: (G,), ascending: the cell of each group; None if groups have equal log-odds.
    cells: Numbers | None
    #: (G,) each: the mean log-odds, and the weighted numbers of rows and hits.
    odds: Numbers
    rows: Numbers
    hits: Numbers
    resolution: Resolution

    @classmethod
    def of_rows(
        cls,
        odds: Numbers,
        hits: NDArray[np.bool_],
        resolution: Resolution | None = None,
        *,
        weights: Numbers | None = None,
    ) -> OddsSums:
        """Return the sums of rows (N,), which count as `weights` (N,) say, by default 1.

        The resolution is `OF_TOP_LABEL` by default.
        """
        rows = np.ones(len(odds)) if weights is None else weights
        return _sum_equal(odds, rows, rows * hits, resolution or OF_TOP_LABEL)

    def merge(self, other: OddsSums) -> OddsSums:
        """Return the sums of the rows of both."""
        if self.cells is None and other.cells is None:
            a, b = self, other
            combine = _sum_equal
        else:
            a, b = self._in_cells(), other._in_cells()
            combine = _sum_cells
        odds = np.concatenate([a.odds, b.odds])
        rows, hits = np.concatenate([a.rows, b.rows]), np.concatenate([a.hits, b.hits])
        return combine(odds, rows, hits, self.resolution)

    def groups(self) -> Groups:
        """Return the groups for a solver."""
        starts = group_starts(self.odds)
        rows, hits = (np.add.reduceat(values, starts) for values in (self.rows, self.hits))
        cells = None if self.cells is None else self.cells[starts] / self.resolution.cells_per_nat
        return Groups(self.odds[starts], rows, hits, cells=cells)

    def _in_cells(self) -> OddsSums:
        return (
            self
            if self.cells is not None
            else _sum_cells(self.odds, self.rows, self.hits, self.resolution)
        )


def _sum_equal(odds: Numbers, rows: Numbers, hits: Numbers, resolution: Resolution) -> OddsSums:
    distinct, group = np.unique(odds, return_inverse=True)
    count, hit = _sums_by(group, rows, hits)
    exact = OddsSums(None, distinct, count, hit, resolution)
    return exact if len(distinct) <= resolution.max_exact else exact._in_cells()


def _sum_cells(odds: Numbers, rows: Numbers, hits: Numbers, resolution: Resolution) -> OddsSums:
    width = 1 / resolution.cells_per_nat
    cells, group = np.unique(np.floor(odds / width), return_inverse=True)
    count, hit, total = _sums_by(group, rows, hits, rows * odds)
    # The mean of a cell may be rounded out of it, and merged sums would leave the cell.
    high = np.nextafter((cells + 1) * width, -np.inf)
    return OddsSums(cells, np.clip(total / count, cells * width, high), count, hit, resolution)


def _sums_by(group: NDArray[np.intp], *values: Numbers) -> list[Numbers]:
    return [group_sums(group, of_rows) for of_rows in values]
