"""Whether the residuals of neighbouring rows depend on each other.

Legend: s rows of a block, B pairs of blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.stats.groups import group_sums

Values = NDArray[np.float64]

#: Rows of the shortest blocks, and the number of their lengths, each twice the one before.
_LEAST, _LENGTHS = 16, 16
#: Pairs of blocks that a length needs.
_MIN_PAIRS = 4
#: The probability of a false warning over all looks, and the labels of the first look.
_FALSE_WARNINGS, _FIRST_LOOK = 0.05, 512
#: Bins of probability whose mean residual is subtracted, and the rows that shrink it towards 0.
_BINS, _STRENGTH = 15, 50.0


class Dependence(NamedTuple):
    """How much more sums of neighbouring residuals vary than those of independent rows."""

    #: The ratio of variances for blocks of at least this number of rows, for the number that shows
    #: most.
    ratio: float
    rows: int
    #: Whether it is above 1 beyond chance.
    is_significant: bool


class DependenceTest:
    """A test whether residuals of rows that are near in time depend on each other.

    A block is s rows that follow each other. Of two neighbouring blocks with the sums S₁ and S₂ of
    their residuals, and the sample variance σ̂² of the 2s residuals,

        c² = (S₁ − S₂)² / (2s σ̂²)

    has the mean 1 over all orders of the 2s rows: if rows are exchangeable, whatever their
    accuracy, and however rare errors are. Rows in copies, sessions or days that are right or wrong
    together make it larger, for all blocks longer than these. The sum of the B values of all
    lengths from s on is compared with the χ² distribution of B degrees of freedom, for s = 16, 32,
    64 and so on as long as a length has 4 pairs.

    An error that changes with time or with the probability is no dependence. The difference
    subtracts what two neighbouring blocks have in common; the largest c² of each length counts as
    no more than chance gives, since an abrupt drift is in one pair; and residuals are first centred
    by bin, with the means of earlier rows.

    It looks at 512 labels and at each doubling. Look k has the level 0.05/(k(k + 1)), divided by
    the number of lengths: the probability of any warning about independent rows is at most 5%, up
    to the error of the χ² distribution (von Neumann 1941, of a ratio of this kind).
    """

    def __init__(self) -> None:
        self._labels, self._look = 0, 0
        #: Residuals of the open block of the shortest length.
        self._rows: Values = np.zeros(0)
        #: Of each length: the sums r and r² of a block without a partner, NaN without one; and the
        #: number of pairs, Σc² and the largest c².
        self._open = np.full((_LENGTHS, 2), np.nan)
        self._pairs = np.zeros((_LENGTHS, 3))
        #: Number of rows and sum of residuals by bin.
        self._bins = np.zeros((2, _BINS))
        #: At the last look, None before the first.
        self.result: Dependence | None = None

    def add(self, probabilities: Values, residuals: Values) -> None:
        """Add rows of a cohort (N,) in the order of time; a group is one row, with its means."""
        where = np.minimum((probabilities * _BINS).astype(np.intp), _BINS - 1)
        count, total = self._bins
        centred = residuals - (total / (count + _STRENGTH))[where]
        self._bins += [group_sums(where, values, _BINS) for values in (None, residuals)]
        self._labels += len(residuals)
        rows = np.concatenate([self._rows, centred])
        whole = len(rows) - len(rows) % _LEAST
        self._rows = rows[whole:]
        parts = rows[:whole].reshape(-1, _LEAST)
        blocks = np.stack([parts.sum(axis=1), (parts**2).sum(axis=1)], axis=1)
        for length in range(_LENGTHS):
            if len(blocks):
                blocks = self._pair(length, blocks)
        while self._labels >= _FIRST_LOOK << self._look:
            self._look += 1
            self.result = self._test()

    def state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "labels": self._labels,
            "look": self._look,
            "rows": self._rows.tolist(),
            "open": [[None if np.isnan(x) else x for x in row] for row in self._open.tolist()],
            "pairs": self._pairs.tolist(),
            "bins": self._bins.tolist(),
            "result": None if self.result is None else list(self.result),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._labels, self._look = int(state["labels"]), int(state["look"])
        self._rows = np.array(state["rows"], np.float64)
        self._open = np.array(state["open"], np.float64)
        self._pairs, self._bins = np.array(state["pairs"]), np.array(state["bins"])
        self.result = None if state["result"] is None else Dependence(*state["result"])

    def _pair(self, length: int, blocks: Values) -> Values:
        """Count the pairs of blocks (M, 2) of a length; return the blocks of twice the length."""
        if not np.isnan(self._open[length]).any():
            blocks = np.concatenate([self._open[length : length + 1], blocks])
        even = len(blocks) - len(blocks) % 2
        self._open[length] = blocks[even] if even < len(blocks) else np.nan
        first, second = blocks[:even:2], blocks[1:even:2]
        joined, rows = first + second, 2 * _LEAST << length
        squares = (first - second)[:, 0] ** 2
        variances = (joined[:, 1] - joined[:, 0] ** 2 / rows) * rows / (rows - 1)
        # Without any variance, nothing can be said.
        c = np.where(variances > 1e-9, squares / np.maximum(variances, 1e-9), 1.0)
        count, total, largest = self._pairs[length]
        self._pairs[length] = count + len(c), total + c.sum(), max(largest, c.max(initial=0.0))
        return joined

    def _test(self) -> Dependence:
        count, total, largest = self._pairs[self._pairs[:, 0] >= _MIN_PAIRS].T
        # One of B values exceeds this on average: the largest counts as no more.
        usual = np.minimum(largest, scipy.special.chdtri(1, 1 / count))
        # Dependence of neighbours shows in all longer blocks too.
        sums = np.cumsum((total - largest + usual)[::-1])[::-1]
        count = np.cumsum(count[::-1])[::-1]
        ratios, chances = sums / count, scipy.special.chdtrc(count, sums)
        worst = int(np.argmin(chances))
        level = _FALSE_WARNINGS / (self._look * (self._look + 1) * len(count))
        return Dependence(float(ratios[worst]), _LEAST << worst, bool(chances[worst] < level))
