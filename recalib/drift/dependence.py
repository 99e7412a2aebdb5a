"""Whether the residuals of neighbouring rows, or of neighbouring days, depend on each other.

Legend: s rows of a block, B pairs of blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.drift.repeats import RepeatCount
from recalib.stats.groups import group_sums

#: Rows of the shortest blocks, and the number of lengths, each twice the one before.
_LEAST, _LENGTHS = 16, 16
_DAY = 86_400.0
#: Pairs of blocks that a length needs.
_MIN_PAIRS = 4
#: The probability of a false warning over all looks, the labels of the first look, and the looks
#: until twice as many labels.
_FALSE_WARNINGS, _FIRST_LOOK, _LOOKS = 0.05, 512, 2
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

    A block is rows that follow each other. Of two neighbouring blocks of n₁ and n₂ rows with the
    mean residuals m₁ and m₂, and the sample variance σ̂² of all these residuals,

        c² = (m₁ − m₂)² / (σ̂²(1/n₁ + 1/n₂))

    has the mean 1 over all orders of the rows: if rows are exchangeable, whatever their accuracy,
    and however rare errors are. Rows in copies, sessions or days that are right or wrong together
    make it larger, for all blocks longer than these. The sum of the B values of all lengths from s
    on is compared with the χ² distribution of B degrees of freedom, for each s that has 4 pairs.
    Blocks of 16 rows, 32, 64 and so on find copies and sessions; blocks of a day (UTC), 2 days, 4
    days and so on find weaker effects of days.

    An error that changes with time or with the probability is no dependence. The difference
    subtracts what two neighbouring blocks have in common. The largest c² of each length counts as
    no more than the second, since an abrupt drift is in one pair. And residuals are first centred
    by bin: the difference between the mean of earlier rows of the bin and of all is subtracted.

    It looks at 512 labels, and twice in each doubling. The looks of doubling k have the level
    0.05/(k(k + 1)), divided by the number of lengths: the probability of any warning about
    independent rows is at most 5%, up to the error of the χ² distribution (von Neumann 1941, of a
    ratio of this kind).
    """

    def __init__(self) -> None:
        self._labels, self._look = 0, 0
        #: Residuals of the open block of the shortest length.
        self._rows: Numbers = np.zeros(0)
        #: The number of the open day, and its block.
        self._day, self._of_day = 0.0, np.zeros(3)
        self._ladders = _Ladder(), _Ladder()
        #: Number of rows and sum of residuals by bin.
        self._bins = np.zeros((2, _BINS))
        self.repeats = RepeatCount()
        #: At the last look, None before the first.
        self.result: Dependence | None = None

    def add(self, times: Numbers, probabilities: Numbers, residuals: Numbers) -> None:
        """Add rows of a cohort (N,) in the order of time; a group is one row, with its means.

        Parameters
        ----------
        times: in seconds.
        """
        where = np.minimum((probabilities * _BINS).astype(np.intp), _BINS - 1)
        count, total = self._bins
        common = total.sum() / max(count.sum(), 1.0)
        centred = residuals - ((total - count * common) / (count + _STRENGTH))[where]
        self._bins += [group_sums(where, values, _BINS) for values in (None, residuals)]
        self._labels += len(residuals)
        self.repeats.add(probabilities)
        rows = np.concatenate([self._rows, centred])
        whole = len(rows) - len(rows) % _LEAST
        self._rows = rows[whole:]
        self._ladders[0].add(_blocks(rows[:whole], np.arange(0, whole, _LEAST)))
        self._add_days(np.floor(times / _DAY), centred)
        while self._labels >= _FIRST_LOOK * 2 ** (self._look / _LOOKS):
            self._look += 1
            self.result = self._test()

    def state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "labels": self._labels,
            "look": self._look,
            "rows": self._rows.tolist(),
            "day": [self._day, *self._of_day.tolist()],
            "ladders": [ladder.state() for ladder in self._ladders],
            "bins": self._bins.tolist(),
            "repeats": self.repeats.state(),
            "result": None if self.result is None else list(self.result),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; a test of an earlier version begins again."""
        self.result = None if state["result"] is None else Dependence(*state["result"])
        if "ladders" not in state:
            return
        self._labels, self._look = int(state["labels"]), int(state["look"])
        self._rows = np.array(state["rows"], np.float64)
        self._day, self._of_day = float(state["day"][0]), np.array(state["day"][1:])
        for ladder, saved in zip(self._ladders, state["ladders"], strict=True):
            ladder.restore(saved)
        self._bins = np.array(state["bins"])
        self.repeats.restore(state["repeats"])

    def _add_days(self, days: Numbers, residuals: Numbers) -> None:
        """Add rows to the open day, and days that have ended to their ladder."""
        if not len(days):
            return
        starts = np.flatnonzero(np.diff(days, prepend=np.nan))
        blocks = _blocks(residuals, starts)
        if days[0] == self._day:
            blocks[0] += self._of_day
        elif self._of_day[0]:
            blocks = np.concatenate([self._of_day[None], blocks])
        self._day, self._of_day = float(days[-1]), blocks[-1]
        self._ladders[1].add(blocks[:-1])

    def _test(self) -> Dependence:
        sums = [sums for ladder in self._ladders if len((sums := ladder.sums())[0])]
        doubling = (self._look - 1) // _LOOKS + 1
        level = _FALSE_WARNINGS / (doubling * (doubling + 1) * _LOOKS * len(sums))
        rows, pairs, totals = np.concatenate(sums, axis=1)
        lengths = np.concatenate([np.full(len(part[0]), len(part[0])) for part in sums])
        chances = scipy.special.chdtrc(pairs, totals) * lengths
        worst = int(np.argmin(chances))
        ratio = float(totals[worst] / pairs[worst])
        return Dependence(ratio, round(rows[worst]), bool(chances[worst] < level))


class _Ladder:
    """Blocks of some length, twice this length, and so on."""

    def __init__(self) -> None:
        #: Of each length: rows, Σr and Σr² of a block without a partner, NaN without one; and the
        #: number of pairs, Σc², the largest c² and the second, and rows.
        self._open = np.full((_LENGTHS, 3), np.nan)
        self._pairs = np.zeros((_LENGTHS, 5))

    def add(self, blocks: Numbers) -> None:
        """Add blocks (M, 3) of the shortest length: rows, Σr and Σr²."""
        for length in range(_LENGTHS):
            if len(blocks):
                blocks = self._pair(length, blocks)

    def sums(self) -> Numbers:
        """Return mean rows of a block, pairs and Σc² from each length on, (3, lengths)."""
        count, total, largest, second, rows = self._pairs[self._pairs[:, 0] >= _MIN_PAIRS].T
        # Dependence of neighbours shows in all longer blocks too.
        longer = np.cumsum(np.array([count, total - largest + second])[:, ::-1], axis=1)[:, ::-1]
        return np.stack([rows / (2 * count), *longer])

    def state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        rows = self._open.tolist()
        return {
            "open": [[None if np.isnan(x) else x for x in row] for row in rows],
            "pairs": self._pairs.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._open = np.array(state["open"], np.float64)
        self._pairs = np.array(state["pairs"], np.float64)

    def _pair(self, length: int, blocks: Numbers) -> Numbers:
        """Count the pairs of blocks (M, 3) of a length; return the blocks of twice the length."""
        if not np.isnan(self._open[length]).any():
            blocks = np.concatenate([self._open[length : length + 1], blocks])
        even = len(blocks) - len(blocks) % 2
        self._open[length] = blocks[even] if even < len(blocks) else np.nan
        first, second = blocks[:even:2], blocks[1:even:2]
        joined = first + second
        rows, sums, squares = joined.T
        variances = (squares - sums**2 / rows) / (rows - 1)
        spread = (first[:, 1] / first[:, 0] - second[:, 1] / second[:, 0]) ** 2
        spread /= 1 / first[:, 0] + 1 / second[:, 0]
        # Without any variance, nothing can be said.
        c = np.where(variances > 1e-9, spread / np.maximum(variances, 1e-9), 1.0)
        count, total, *largest, seen = self._pairs[length]
        low, high = np.sort(np.concatenate([largest, c]))[-2:]
        self._pairs[length] = count + len(c), total + c.sum(), high, low, seen + rows.sum()
        return joined


def _blocks(residuals: Numbers, starts: NDArray[np.intp]) -> Numbers:
    """Return rows, Σr and Σr² of the blocks that begin at these rows, (M, 3)."""
    if not len(starts):
        return np.zeros((0, 3))
    columns = np.stack([np.ones(len(residuals)), residuals, residuals**2], axis=1)
    return np.add.reduceat(columns, starts, axis=0)
