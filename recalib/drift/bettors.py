"""Bettors: models that predict correctness before the label is seen.

A bettor predicts the probability that each row is correct from the labels of the rows before it.
The test in `calibration_test.py` is valid for every bettor, because a prediction uses no label of
its own row or of a later one. A better bettor finds drift sooner.

Legend: N rows, J alternatives, M cells of confidence, B bins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.errors import InputError

__all__ = ["Bettor", "BinnedBettor", "MixtureBettor", "default_bettors"]

Values = NDArray[np.float64]

#: Predictions are clipped this far from 0 and 1: one wrong bet may not lose the whole stake.
_EDGE = 1e-6


class Bettor(ABC):
    """Predicts the correctness of rows in their order, and learns from them."""

    #: The share of the stake, up to a common factor.
    share: float

    @abstractmethod
    def predict(self, confidences: Values, correct: Values) -> Values:
        """Return the probability that each row is correct, (N,) inside (0, 1), and learn.

        The prediction for row n depends on `correct[:n]` only. Both arguments are (N,); a call may
        have any number of rows above 0 of one block.
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


@dataclass(frozen=True)
class _Alternatives:
    """Plausible drifts: fixed curves of accuracy by confidence, tabulated by cell of confidence."""

    #: Accuracy minus confidence (M, J).
    deviations: Values
    #: Prior weight of each alternative (J,); the weights sum to 1.
    weights: Values
    #: The log likelihood ratio of an alternative to the confidence, for a row that is wrong or
    #: correct, (2, M, J). It is clipped, so that no row outweighs all others.
    log_ratios: Values


class MixtureBettor(Bettor):
    """The mean of fixed alternatives, weighted by their odds given the labels.

    An alternative is a curve of accuracy by confidence: a slope and an intercept on the scale of
    log-odds, wrong labels, or an offset in a tenth of the confidences (see `_alternatives`). A
    drift to alternative j may begin before every row. The odds that it has begun, against no drift,
    are a Shiryaev-Roberts sum,

        o_j ← (o_j + ρ w_j) · (likelihood ratio of j for the row),

    and the prediction is q = c + Σ o_j d_j(c) / (1 + Σ o_j) with d_j = accuracy − confidence. While
    nothing is wrong the odds are small and q is near c: within the tolerance a bet neither wins nor
    loses. After a drift the odds grow with the divergence from c, which is faster than the evidence
    against c ± ε can grow, so the delay of learning is small.

    Source: Shiryaev 1963; Roberts 1966; for mixtures of predictions, Cesa-Bianchi and Lugosi,
    Prediction, Learning, and Games, 2006.
    """

    share = 0.9

    #: ρ, the weight of a drift that begins at a row, and the prior odds of a drift from the start.
    rate: ClassVar[float] = 1 / 300
    prior_odds: ClassVar[float] = 1.0
    #: At the start of a block the odds add up to this at most: another drift may follow.
    max_odds: ClassVar[float] = 100.0

    def __init__(self) -> None:
        self._odds = self.prior_odds * _alternatives().weights

    def predict(self, confidences: Values, correct: Values) -> Values:
        table, cells = _alternatives(), _cells(confidences)
        after = _cumsum(table.log_ratios[correct.astype(np.intp), cells])
        np.exp(after, out=after)
        before = np.concatenate([np.ones((1, after.shape[1])), after[:-1]])
        # Odds that begin at row m grow by before[n] / before[m] until row n.
        onset_odds = _cumsum(1 / before)
        onset_odds *= self.rate * table.weights
        onset_odds += self._odds
        odds = before * onset_odds
        total = 1 + odds @ np.ones(odds.shape[1])
        means = np.einsum("nj,nj->n", odds, table.deviations[cells]) / total
        self._odds = after[-1] * onset_odds[-1]
        return _clip(confidences + means)

    def start_block(self) -> None:
        self._odds = self._odds * min(1.0, self.max_odds / self._odds.sum())

    def state(self) -> dict[str, Any]:
        return {"odds": self._odds.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        odds = np.array(state.get("odds", ()), np.float64)
        _check_shape("odds", odds, self._odds)
        self._odds = odds


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

    share: float = 0.1
    #: n, Σc(1 − c) and Σ(a − c) of earlier blocks and of the open one, (3, B) each.
    _sums: Values = field(init=False)
    _open: Values = field(init=False)

    def __post_init__(self) -> None:
        self._sums, self._open = np.zeros((2, 3, self.bins))

    def predict(self, confidences: Values, correct: Values) -> Values:
        bins = np.minimum((confidences * self.bins).astype(np.intp), self.bins - 1)
        count, variance, residual = self._sums
        # A bin of confidences near 1 has almost no variance: one error in it is strong evidence.
        squared = residual**2 / np.maximum(variance, _EDGE)
        shift = (1 - 1 / np.maximum(squared, 1)) * residual / (count + self.strength)
        terms = (None, confidences * (1 - confidences), correct - confidences)
        self._open += [np.bincount(bins, term, self.bins) for term in terms]
        return _clip(confidences + shift[bins])

    def start_block(self) -> None:
        self._sums, self._open = self._sums + self._open, np.zeros_like(self._open)

    def state(self) -> dict[str, Any]:
        return {"sums": self._sums.tolist(), "open": self._open.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        sums, rows = (np.array(state.get(name, ()), np.float64) for name in ("sums", "open"))
        _check_shape("sums", sums, self._sums)
        _check_shape("open", rows, self._open)
        self._sums, self._open = sums, rows


def default_bettors() -> list[Bettor]:
    """Return new bettors for a test; `python -m benchmarks.monitoring.bound` measures them."""
    return [MixtureBettor(), BinnedBettor()]


#: Cells of equal width in arcsin √c, in which residuals have equal variance.
_CELLS = 256
#: Slopes and intercepts of the true log-odds against those of the confidence.
_SLOPES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.93, 1.0, 1.1, 1.3)
_INTERCEPTS = (-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5)
#: Shares of labels that are replaced by wrong ones.
_NOISE = (0.05, 0.12)
#: Offsets of accuracy in windows of confidence of width 0.1 that begin at each multiple of 0.05.
_OFFSETS = (-0.12, 0.12)
_WINDOW, _STEP = 0.1, 0.05
#: The weight of all windows together, and the bound of a row's log likelihood ratio.
_LOCAL_WEIGHT = 0.4
_MAX_LOG_RATIO = 4.0


@cache
def _alternatives() -> _Alternatives:
    centres = np.sin((np.arange(_CELLS) + 0.5) / _CELLS * np.pi / 2) ** 2
    odds = scipy.special.logit(centres)
    curves = [
        scipy.special.expit(slope * odds + intercept)
        for slope in _SLOPES
        for intercept in _INTERCEPTS
        if (slope, intercept) != (1.0, 0.0)
    ]
    curves += [(1 - noise) * centres for noise in _NOISE]
    starts = np.arange(0, 1 - _WINDOW + _EDGE, _STEP)
    windows = [
        centres + offset * ((centres >= start) & (centres < start + _WINDOW))
        for start in starts
        for offset in _OFFSETS
    ]
    truth = _clip(np.stack([*curves, *windows], axis=1))
    weights = np.repeat(
        [(1 - _LOCAL_WEIGHT) / len(curves), _LOCAL_WEIGHT / len(windows)],
        [len(curves), len(windows)],
    )
    confidences = _clip(centres)[:, None]
    ratios = np.stack([(1 - truth) / (1 - confidences), truth / confidences])
    logs = np.clip(np.log(ratios), -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return _Alternatives(truth - confidences, weights, logs)


def _cells(confidences: Values) -> NDArray[np.intp]:
    """Return the index of the cell of each confidence."""
    angles = np.arcsin(np.sqrt(confidences)) * (2 / np.pi)
    return np.minimum((angles * _CELLS).astype(np.intp), _CELLS - 1)


#: Rows of a partial sum, and the matrix whose product with these rows is their running sums.
_PART = 32
_TRIANGLE = np.tri(_PART)


def _cumsum(rows: Values) -> Values:
    """Return the running sums of rows (N, J), in half the time of `np.cumsum`."""
    parts = np.zeros((-(-len(rows) // _PART) * _PART, rows.shape[1]))
    parts[: len(rows)] = rows
    sums = _TRIANGLE @ parts.reshape(-1, _PART, rows.shape[1])
    sums[1:] += np.cumsum(sums[:-1, -1], axis=0)[:, None]
    result: Values = sums.reshape(parts.shape)[: len(rows)]
    return result


def _clip(q: Values) -> Values:
    """Return probabilities clipped inside (0, 1), in a third of the time of `np.clip`."""
    return np.minimum(np.maximum(q, _EDGE), 1 - _EDGE)


def _check_shape(name: str, stored: Values, current: Values) -> None:
    if stored.shape != current.shape:
        accepted = f"{current.shape}: the state of the same bettor"
        raise InputError(f"state.{name}", found=f"shape {stored.shape}", accepted=accepted)
