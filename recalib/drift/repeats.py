"""Rows that repeat a row close by: retries and copies without a group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers

#: Rows that are read at once, those among which all rows of a value are close, and reads until the
#: counts begin again.
_ROWS, _SPAN, _READS = 256, 16, 16
#: The probability of a false report over all reads, and the least share of rows of a report.
_FALSE_REPORTS, _LEAST_SHARE = 0.01, 0.01


class Repeats(NamedTuple):
    """Rows that repeat the probability of a row close by."""

    #: Of this number of rows.
    repeats: int
    rows: int
    #: Whether they are more than discrete scores explain, and at least 1%.
    is_significant: bool


class RepeatCount:
    """Counts rows whose probability occurs in no other rows than close ones.

    Of 256 rows that follow each other, the m ≥ 2 rows of a value are *close* if they are among 16
    neighbours. If rows are exchangeable, this has the probability

        P_m = ((N − K + 1)·C(K, m) − (N − K)·C(K − 1, m)) / C(N, m),   K = 16, N = 256,

    the share of positions of m rows that span at most K. So values that are common because scores
    are rounded or saturated are hardly ever close. The number of values with close rows is compared
    with a Poisson distribution of mean ΣP_m, at the k-th 256 rows with the level 0.01/(k(k + 1)).
    The counts begin again after 4,096 rows.
    """

    def __init__(self) -> None:
        self._rows: Numbers = np.zeros(0)
        #: All reads; and since the counts began, values with close rows, their expected number, and
        #: rows beyond the first of these values.
        self._reads, self._values, self._expected, self._repeats = 0, 0, 0.0, 0
        #: The last that is significant or of 4,096 rows; None before.
        self.result: Repeats | None = None

    def add(self, probabilities: Numbers) -> None:
        """Add rows (N,) in the order of time; a group is one row."""
        rows = np.concatenate([self._rows, probabilities])
        whole = len(rows) - len(rows) % _ROWS
        self._rows = rows[whole:]
        for part in rows[:whole].reshape(-1, _ROWS):
            self._read(part)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "rows": self._rows.tolist(),
            "counts": [self._reads, self._values, self._expected, self._repeats],
            "result": None if self.result is None else list(self.result),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._rows = np.array(state["rows"], np.float64)
        self._reads, self._values, self._expected, self._repeats = state["counts"]
        self.result = None if state["result"] is None else Repeats(*state["result"])

    def _read(self, rows: Numbers) -> None:
        _, where, counts = np.unique(rows, return_inverse=True, return_counts=True)
        first, last = np.full(len(counts), _ROWS), np.zeros(len(counts), np.int64)
        np.minimum.at(first, where, np.arange(_ROWS))
        np.maximum.at(last, where, np.arange(_ROWS))
        close = (counts > 1) & (last - first < _SPAN)
        self._values += int(np.count_nonzero(close))
        self._expected += float(_chance_of_close(counts[counts > 1]).sum())
        self._repeats += int((counts[close] - 1).sum())
        self._reads += 1
        reads = (self._reads - 1) % _READS + 1
        # P(Poisson ≥ values).
        chance = scipy.special.gammainc(max(self._values, 1), self._expected)
        level = _FALSE_REPORTS / (self._reads * (self._reads + 1))
        enough = self._repeats >= _LEAST_SHARE * reads * _ROWS
        is_significant = bool(enough and self._values > 0 and chance < level)
        if is_significant or reads == _READS:
            self.result = Repeats(self._repeats, reads * _ROWS, is_significant)
        if reads == _READS:
            self._values, self._expected, self._repeats = 0, 0.0, 0


def _chance_of_close(counts: NDArray[np.int64]) -> Numbers:
    """Return P_m of each number m of rows."""
    positions = (_ROWS - _SPAN + 1) * scipy.special.binom(_SPAN, counts)
    positions -= (_ROWS - _SPAN) * scipy.special.binom(_SPAN - 1, counts)
    return positions / scipy.special.binom(_ROWS, counts)
