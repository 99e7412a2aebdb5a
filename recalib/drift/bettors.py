"""Bettors: models that predict correctness before the label is seen.

A bettor predicts the probability that each row is correct from the labels of the rows before it.
The test in `calibration_test.py` is valid for every bettor, because a prediction uses no label of
its own row or of a later one. A better bettor finds drift sooner.

Legend: N rows, U units, J alternatives, B bins. A unit is a group of rows that count once, or a row
without a group; "row" below is a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from recalib.core.arrays import Numbers
from recalib.drift.alternatives import EDGE, alternatives, clip, confidence_cells
from recalib.drift.row_groups import Sizes, to_rows, unit_means
from recalib.drift.target import Target
from recalib.errors import InputError
from recalib.stats.groups import group_sums


class Bettor(ABC):
    """Predicts the correctness of rows in their order, and learns from them.

    Examples
    --------
    >>> from recalib.drift import default_bettors
    >>> bettor = default_bettors()[1]
    >>> bettor.predict(np.array([0.9]), np.array([1.0]))
    array([0.9])
    """

    #: The share of the stake, up to a common factor.
    share: float

    @abstractmethod
    def predict(self, confidences: Numbers, correct: Numbers, sizes: Sizes = None) -> Numbers:
        """Return the probability that each row is correct, (N,) inside (0, 1), and learn.

        The predictions for a unit depend on `correct` of the units before it only. `confidences`
        and `correct` are (N,); a call may have any number of units above 0 of one block.

        Parameters
        ----------
        sizes: the number of rows of each unit, (U,), which follow each other; by default 1.
        """

    @abstractmethod
    def start_block(self) -> None:
        """Prepare for the next block; the test calls it before each block."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the learnt parameters as JSON."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; raise `InputError` for the state of another bettor."""


class MixtureBettor(Bettor):
    """The mean of fixed alternatives, weighted by their odds given the labels.

    An alternative is a curve of accuracy by confidence: a temperature, an intercept of log-odds,
    wrong labels, or an offset in a range of confidences (see `alternatives`). A drift to
    alternative j may begin before every row. The odds that it has begun, against no drift, are a
    Shiryaev-Roberts sum,

        o_j ← (o_j + ρ w_j(c)) · (likelihood ratio of j for the row),

    and the prediction is q = c + Σ o_j d_j(c) / (1 + Σ o_j) with d_j = accuracy − confidence. While
    nothing is wrong the odds are small and q is near c: within the tolerance a bet neither wins nor
    loses. After a drift the odds grow with the divergence from c, which is faster than the evidence
    against c ± ε can grow, so the delay of learning is small. A larger ρ shortens it by ln ρ and
    costs stake before the drift: sums that grow by chance are bets beyond the tolerance.

    Source: Shiryaev 1963; Roberts 1966; for mixtures of predictions, Cesa-Bianchi and Lugosi,
    Prediction, Learning, and Games, 2006.
    """

    share = 0.95

    #: ρ, the weight of a drift that begins at row n, is 1 / max(n, this): it falls, so that the
    #: stake lost to chance grows with ln n. And the prior odds of a drift from the start.
    least_rows: ClassVar[int] = 5000
    prior_odds: ClassVar[float] = 0.1
    #: At the start of a block the odds add up to this at most: another drift may follow.
    max_odds: ClassVar[float] = 100.0

    def __init__(self, target: Target = "top_label") -> None:
        self._table = alternatives(target)
        self._odds = self.prior_odds * self._table.weights
        self._rows = 0

    def predict(self, confidences: Numbers, correct: Numbers, sizes: Sizes = None) -> Numbers:
        table, cells = self._table, confidence_cells(confidences)
        after = _cumsum(unit_means(table.log_ratios[correct.astype(np.intp), cells], sizes))
        np.exp(after, out=after)
        before = np.concatenate([np.ones((1, after.shape[1])), after[:-1]])
        # Odds that begin at row m grow by before[n] / before[m] until row n.
        rows = self._rows + np.arange(len(after))
        rates = 1 / np.maximum(rows, self.least_rows)
        onsets = unit_means(table.onsets[cells], sizes)
        onset_odds = _cumsum(onsets * rates[:, None] / before)
        onset_odds += self._odds
        odds = before * onset_odds
        total = 1 + odds @ np.ones(odds.shape[1])
        odds, total = to_rows(odds, sizes), to_rows(total, sizes)
        means = np.einsum("nj,nj->n", odds, table.deviations[cells]) / total
        self._odds = after[-1] * onset_odds[-1]
        self._rows += len(after)
        return clip(confidences + means)

    def start_block(self) -> None:
        self._odds = self._odds * min(1.0, self.max_odds / self._odds.sum())

    def state(self) -> dict[str, Any]:
        return {"odds": self._odds.tolist(), "rows": self._rows}

    def restore(self, state: dict[str, Any]) -> None:
        odds = np.array(state.get("odds", ()), np.float64)
        _check_shape("odds", odds, self._odds)
        self._odds, self._rows = odds, int(state["rows"])


@dataclass
class BinnedBettor(Bettor):
    """The mean residual of each bin of confidence, shrunk towards 0.

    q = c + s·Σ(a − c) / (n + `strength`) over the rows of the bin in earlier blocks, with
    s = max(1 − 1/z², 0) and z the standardised sum (James and Stein 1961): within its noise a bin
    bets nothing. It forgets nothing, so it finds every lasting error of a bin above the tolerance,
    also one that no alternative of `MixtureBettor` resembles.
    """

    bins: ClassVar[int] = 15
    strength: ClassVar[float] = 50.0

    share: float = 0.05
    #: n, Σc(1 − c) and Σ(a − c) of earlier blocks and of the open one, (3, B) each.
    _sums: Numbers = field(init=False)
    _open: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self._sums, self._open = np.zeros((2, 3, self.bins))

    def predict(self, confidences: Numbers, correct: Numbers, sizes: Sizes = None) -> Numbers:
        bins = np.minimum((confidences * self.bins).astype(np.intp), self.bins - 1)
        count, variance, residual = self._sums
        # A bin of confidences near 1 has almost no variance: one error in it is strong evidence.
        squared = residual**2 / np.maximum(variance, EDGE)
        shift = (1 - 1 / np.maximum(squared, 1)) * residual / (count + self.strength)
        terms = [np.ones(len(bins)), confidences * (1 - confidences), correct - confidences]
        if sizes is not None:
            terms = [term / to_rows(sizes, sizes) for term in terms]
        self._open += [group_sums(bins, term, self.bins) for term in terms]
        return clip(confidences + shift[bins])

    def start_block(self) -> None:
        self._sums, self._open = self._sums + self._open, np.zeros_like(self._open)

    def state(self) -> dict[str, Any]:
        return {"sums": self._sums.tolist(), "open": self._open.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        sums, rows = (np.array(state.get(name, ()), np.float64) for name in ("sums", "open"))
        _check_shape("sums", sums, self._sums)
        _check_shape("open", rows, self._open)
        self._sums, self._open = sums, rows


def default_bettors(target: Target = "top_label") -> list[Bettor]:
    """Return new bettors of this target; benchmarks/monitoring/README.md has their delays.

    Examples
    --------
    >>> from recalib.drift import default_bettors
    >>> [type(bettor).__name__ for bettor in default_bettors()]
    ['MixtureBettor', 'BinnedBettor']
    """
    return [MixtureBettor(target), BinnedBettor()]


#: Rows of a partial sum, and the matrix whose product with these rows is their running sums.
_PART = 32
_TRIANGLE = np.tri(_PART)


def _cumsum(rows: Numbers) -> Numbers:
    """Return the running sums of rows (N, J), in half the time of `np.cumsum`."""
    parts = np.zeros((-(-len(rows) // _PART) * _PART, rows.shape[1]))
    parts[: len(rows)] = rows
    sums = _TRIANGLE @ parts.reshape(-1, _PART, rows.shape[1])
    sums[1:] += np.cumsum(sums[:-1, -1], axis=0)[:, None]
    return sums.reshape(parts.shape)[: len(rows)]


def _check_shape(name: str, stored: Numbers, current: Numbers) -> None:
    if stored.shape != current.shape:
        accepted = f"{current.shape}: the state of the same bettor"
        raise InputError(f"state.{name}", found=f"shape {stored.shape}", accepted=accepted)
