"""Log-odds of predictions and classes after temperature scaling, and rows grouped by them.

Rows are processed in blocks to bound memory.

Legend: N rows, K classes, G groups of rows with equal odds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.maps.one_vs_rest import MAX_LOG_ODDS
from recalib.stats.groups import group_sums

#: Numbers in a block: 32 MB of float64.
_BLOCK = 4_000_000
#: Log-odds this close are equal: rows with the same logits in another order differ by rounding.
_TIE = 1e-12


@dataclass(frozen=True)
class Groups:
    """Binary outcomes, grouped by equal log-odds."""

    #: (G,), ascending and distinct.
    odds: Numbers
    #: (G,): the weighted numbers of rows and of hits.
    rows: Numbers
    hits: Numbers
    #: (N,): the rows in ascending order of their odds; None for sums of rows elsewhere.
    order: NDArray[np.intp] | None = None
    #: (G,): the place in `order` of the first row of each group.
    starts: NDArray[np.intp] | None = None
    #: (G,): the least log-odds of the cell whose rows are a group; None if their odds are equal.
    cells: Numbers | None = None

    @property
    def probability(self) -> Numbers:
        """(G,): the probability of a hit by the log-odds."""
        with np.errstate(over="ignore"):  # four times as fast as scipy.special.expit
            return np.asarray(1 / (1 + np.exp(-self.odds)))

    @property
    def is_coarse(self) -> bool:
        """Whether rows have half as many different log-odds or fewer; those of sums may."""
        return self.order is None or 2 * len(self.odds) <= len(self.order)

    @property
    def base_rate(self) -> float:
        """The share of hits, with one row added that is half a hit."""
        return float((self.hits.sum() + 0.5) / (self.rows.sum() + 1.0))

    def of_rows(self, values: Numbers) -> Numbers:
        """Return for each row (N,) the value of its group; `values` is (G,)."""
        assert self.order is not None  # noqa: S101
        assert self.starts is not None  # noqa: S101
        result = np.empty(len(self.order))
        if len(values) < len(result):
            values = np.repeat(values, np.diff(self.starts, append=len(result)))
        result[self.order] = values
        return result

    def start_of_cell(self, threshold: float) -> float:
        """Return the least log-odds of the first group at or above a threshold.

        So a threshold divides no cell. It stays as it is if the groups are exact, or without such
        a group or one below.
        """
        at = int(np.searchsorted(self.odds, threshold))
        if self.cells is None or at in (0, len(self.odds)):
            return threshold
        return float(self.cells[at])


class ScaledRows:
    """The log-odds of rows in memory.

    Parameters
    ----------
    logits: (N, K).
    labels: (N,).
    weights: (N,), with the effective number of rows as their sum.
    temperature: divides the logits.
    """

    def __init__(
        self, logits: Floats, labels: Integers, weights: Numbers, temperature: float
    ) -> None:
        self.logits, self.labels, self.weights = logits, labels, weights
        self.temperature = temperature
        rows = len(labels)
        #: (N,): the predicted class, the first of ties; its log-odds; and log Σ exp(z / T).
        self.top, self.odds, self.total = np.empty(rows, np.intp), np.empty(rows), np.empty(rows)
        for block in _blocks(rows, logits.shape[1]):
            of_block = top_odds(logits[block], temperature)
            self.top[block], self.odds[block], self.total[block] = of_block

    def groups(self, target: str | None) -> Groups:
        """Return the groups of class 1 for the target `positive_class`, else of the top label."""
        if target != "positive_class":
            return group_by_odds(self.odds, self.top == self.labels, self.weights)
        odds = np.where(self.top == 1, self.odds, -self.odds)
        return group_by_odds(odds, self.labels == 1, self.weights)

    def class_groups(self) -> Iterator[Groups]:
        """Yield the groups of each class."""
        for block in _blocks(self.logits.shape[1], len(self.labels)):
            columns = np.array(self.logits[:, block].T, np.float64, order="C")
            columns /= self.temperature
            columns -= self.total
            for k, logs in enumerate(columns, block.start):
                odds = _odds_of_logs(logs, self.top == k, self.odds)
                yield group_by_odds(odds, self.labels == k, self.weights)


def top_odds(logits: Floats, temperature: float) -> tuple[NDArray[np.intp], Numbers, Numbers]:
    """Return the predicted class of rows, its log-odds and log Σ exp(z / T), each (N,)."""
    z = logits / np.float64(temperature)
    at = np.arange(len(z)), z.argmax(axis=1)
    largest = z[at]
    others = np.exp(np.subtract(z, largest[:, None], out=z), out=z)
    others[at] = 0.0
    rest = np.einsum("ij->i", others)
    with np.errstate(divide="ignore"):  # a row with a single class
        odds = -np.log(rest)
    return at[1], np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS), largest + np.log1p(rest)


def is_accepted(logits: Floats, temperature: float, threshold: float) -> NDArray[np.bool_]:
    """Return whether the log-odds of each row's prediction reach a threshold, (N,)."""
    blocks = (logits[block] for block in _blocks(*logits.shape))
    odds = [top_odds(block, temperature)[1] for block in blocks]
    return np.asarray(np.concatenate(odds) >= threshold)


def class_odds(logits: Floats, temperature: float, classes: NDArray[np.intp]) -> Numbers:
    """Return the log-odds of some classes in rows (n, K), within ±`MAX_LOG_ODDS`: (C, n)."""
    top, odds, total = top_odds(logits, temperature)
    logs = logits[:, classes].T / np.float64(temperature) - total
    return _odds_of_logs(logs, top == classes[:, None], odds)


def _odds_of_logs(logs: Numbers, is_top: NDArray[np.bool_], top_odds: Numbers) -> Numbers:
    """Return the log-odds from log p; those of predictions, `top_odds` (n,), are more exact."""
    with np.errstate(divide="ignore"):
        odds = logs - np.log1p(-np.exp(np.minimum(logs, 0.0)))
    np.copyto(odds, top_odds, where=is_top)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS, out=odds)


def group_by_odds(odds: Numbers, hits: NDArray[np.bool_], weights: Numbers) -> Groups:
    """Group rows (N,) by their log-odds."""
    order = np.argsort(odds)
    ascending, rows = odds[order], weights[order]
    hit = rows * hits[order]
    starts = group_starts(ascending)
    if len(starts) < len(order):
        ascending = ascending[starts]
        rows, hit = np.add.reduceat(rows, starts), np.add.reduceat(hit, starts)
    return Groups(ascending, rows, hit, order, starts)


def group_starts(ascending: Numbers) -> NDArray[np.intp]:
    """Return the index of the first of each group of equal log-odds, as `_TIE` defines it."""
    return np.flatnonzero(np.diff(ascending, prepend=-np.inf) > _TIE)


def _blocks(length: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // width)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


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
        if self.cells is not None:
            return self
        return _sum_cells(self.odds, self.rows, self.hits, self.resolution)


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
