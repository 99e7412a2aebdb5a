"""A sequential test of calibration, valid at every number of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.drift.bettors import Bettor, default_bettors, log_odds
from recalib.drift.validation import check_rows
from recalib.errors import InputError
from recalib.options import check_option

__all__ = ["CalibrationTest"]

Values = NDArray[np.float64]

#: Rows of a block: few at first, so that the bettors learn soon, then 128, and 256 in a long
#: stream, which halves the cost of a row.
_MIN_BLOCK, _USUAL_BLOCK, _MAX_BLOCK = 16, 128, 256
#: Onsets this close in log evidence (nats) count as ties. The latest is used: a refit on labels
#: from before the drift does more harm than a refit on fewer labels.
_TIE_NATS = 1.0


@dataclass
class CalibrationTest:
    """A sequential test of calibration, valid at any time; evidence E in [0, ∞).

    The null hypothesis: given the rows before, each row is correct with a probability within
    `tolerance` ε of its confidence p. A bettor predicts q before the label is seen. With p* = q
    clipped to [p − ε, p + ε], the row multiplies the bettor's wealth by

        e = (q / p*)^a · ((1 − q) / (1 − p*))^(1 − a),   a = 1 if the row is correct, else 0,

    whose mean under the hypothesis is at most 1. E is the weighted mean of the wealth over the
    experts and over their start: a part of the stake is reserved for each later block, so that past
    losses do not have to be won back. Under the hypothesis P(E ever reaches 1/α) ≤ α (Ville).

    Given the prediction, the arrival of a label must not depend on the outcome: if errors are
    labelled more often than correct predictions, a calibrated stream looks miscalibrated.

    `suspicion` is the cumulative sum (CUSUM) of the same bets: the wealth of each expert since the
    block at whose start it was lowest, as if it had started there with the full stake. It is faster
    but has no such guarantee: under the hypothesis it needs on average at least L blocks to reach a
    level L, because it is below the Shiryaev-Roberts statistic.

    Source: Ville 1939; Waudby-Smith and Ramdas, Estimating means of bounded random variables by
    betting, JRSS B 2024; Shin, Ramdas and Rinaldo, E-detectors, 2022.
    """

    alpha: float = 0.05
    tolerance: float = 0.02
    bettors: list[Bettor] = field(default_factory=default_bettors)

    def __post_init__(self) -> None:
        check_option("alpha", self.alpha, 0 < self.alpha < 1, "0 < alpha < 1")
        check_option("tolerance", self.tolerance, 0 <= self.tolerance < 0.5, "0 ≤ tolerance < 0.5")
        #: Labels seen, blocks started, and the label at which the test first rejected.
        self.labels = 0
        self.blocks = 0
        self.rejected_at: int | None = None
        #: log of each expert's share of the stake, (H,).
        self._shares = _log_shares(self.bettors)
        experts = len(self._shares)
        self._staked = np.full(experts, -math.inf)
        #: log of each expert's total wealth, its lowest value at the start of a block, and the
        #: last label before which it was within `_TIE_NATS` of that value.
        self._won = np.zeros(experts)
        self._lowest = np.zeros(experts)
        self._lowest_at = np.zeros(experts, np.int64)
        #: The open block: its size, and its rows so far.
        self._size = 0
        self._open: tuple[Values, Values] = np.zeros(0), np.zeros(0)

    @property
    def log_evidence(self) -> float:
        """log E now; it may decrease after a rejection."""
        return self._evidence(self._staked)

    @property
    def threshold(self) -> float:
        """The log E at which the test rejects, log 1/α."""
        return -math.log(self.alpha)

    @property
    def rejected(self) -> bool:
        """Whether E has ever reached 1/α."""
        return self.rejected_at is not None

    @property
    def leader(self) -> int:
        """The index of the expert that has won most since its lowest value."""
        return int(np.argmax(self._won - self._lowest))

    @property
    def onsets(self) -> list[int]:
        """The number of labels before each expert began to win, at its lowest value.

        This is the CUSUM estimate of the change point; it tends to be late.
        """
        labels: list[int] = self._lowest_at.tolist()
        return labels

    @property
    def onset(self) -> int:
        """The number of labels before the evidence began to grow; refit on the labels after it."""
        return self.onsets[self.leader]

    @property
    def suspicion(self) -> float:
        """The logarithm of the CUSUM, a mean over experts; 0 if all are at their lowest value."""
        since = self._won - np.minimum(self._won, self._lowest)
        return float(np.logaddexp.reduce(since + self._shares))

    def update(self, confidences: Values, correct: Values) -> None:
        """Process rows in the order of their predictions; the size of a call makes no difference.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.

        Raises
        ------
        InputError: shapes differ, or a value is out of range; nothing is processed.
        """
        confidences, correct = check_rows(confidences, correct)
        start = 0
        while start < len(confidences):
            if not self._size:
                self._start_block()
            rows = slice(start, start + self._size - len(self._open[0]))
            self._process(confidences[rows], correct[rows])
            start = rows.stop

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
        return {
            "labels": self.labels,
            "blocks": self.blocks,
            "rejected_at": self.rejected_at,
            "staked": _to_json(self._staked),
            "won": self._won.tolist(),
            "lowest": self._lowest.tolist(),
            "lowest_at": self._lowest_at.tolist(),
            "size": self._size,
            "open": [rows.tolist() for rows in self._open],
            "bettors": [bettor.state() for bettor in self.bettors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the options and bettors must be the same.

        Raises
        ------
        InputError: the state is of other bettors, such as those of an earlier version.
        """
        if len(state["bettors"]) != len(self.bettors):
            found, accepted = f"{len(state['bettors'])} bettors", str(len(self.bettors))
            raise InputError("state.bettors", found=found, accepted=accepted)
        for bettor, saved in zip(self.bettors, state["bettors"], strict=True):
            bettor.restore(saved)
        self.labels, self.blocks = int(state["labels"]), int(state["blocks"])
        self.rejected_at = state["rejected_at"]
        self._staked = _from_json(state["staked"])
        self._won, self._lowest = np.array(state["won"]), np.array(state["lowest"])
        self._lowest_at = np.array(state["lowest_at"], np.int64)
        self._size = int(state["size"])
        p, y = (np.array(rows, np.float64) for rows in state["open"])
        self._open = p, y

    def _start_block(self) -> None:
        """Start a block, before any of its rows is seen."""
        self._size = _block_size(self.labels)
        # The stake reserved for this block is now in play.
        share = math.log(_reserve(self.blocks) - _reserve(self.blocks + 1))
        self._staked = np.logaddexp(self._staked, share)
        self._lowest = np.minimum(self._lowest, self._won)
        low = self._won <= self._lowest + _TIE_NATS
        self._lowest_at = np.where(low, self.labels, self._lowest_at)
        self.blocks += 1

    def _process(self, confidences: Values, correct: Values) -> None:
        """Process rows of the open block; the bettors learn when it is complete."""
        odds = log_odds(confidences)
        q = np.concatenate([bettor.predict(confidences, odds) for bettor in self.bettors])
        path = np.cumsum(self._log_gains(q, confidences, correct), axis=1)
        self._check_rejection(self._staked[:, None] + path)
        log_wealth = path[:, -1]
        self._staked, self._won = self._staked + log_wealth, self._won + log_wealth
        self.labels += len(confidences)
        p, y = confidences, correct
        if len(self._open[0]):
            p, y = np.concatenate([self._open[0], p]), np.concatenate([self._open[1], y])
            odds = log_odds(p)
        self._open = p, y
        if len(p) == self._size:
            for bettor in self.bettors:
                bettor.learn(p, odds, y)
            self._size, self._open = 0, (np.zeros(0), np.zeros(0))

    def _log_gains(self, q: Values, confidences: Values, correct: Values) -> Values:
        """Return log e of each row, (H, N)."""
        # If p* is 0 or 1, the hypothesis excludes one outcome. If it occurs all the same, the clip
        # bounds the gain.
        low = np.minimum(np.maximum(confidences - self.tolerance, 1e-9), 1 - 1e-9)
        high = np.minimum(np.maximum(confidences + self.tolerance, 1e-9), 1 - 1e-9)
        near = np.minimum(np.maximum(q, low), high)
        right = correct == 1
        gains: Values = np.log(np.where(right, q, 1 - q) / np.where(right, near, 1 - near))
        return gains

    def _check_rejection(self, staked: Values) -> None:
        # A mean is at most its largest term, and the reserve is at most 1: most calls end here.
        if self.rejected or staked.max() < self.threshold - math.log(2):
            return
        evidence = np.logaddexp.reduce(staked + self._shares[:, None], axis=0)
        evidence = np.logaddexp(evidence, math.log(_reserve(self.blocks)))
        reached = np.flatnonzero(evidence >= self.threshold)
        if len(reached):
            self.rejected_at = self.labels + int(reached[0]) + 1

    def _evidence(self, staked: Values) -> float:
        wealth = float(np.logaddexp.reduce(staked + self._shares))
        return float(np.logaddexp(wealth, math.log(_reserve(self.blocks))))


def _log_shares(bettors: list[Bettor]) -> Values:
    """Return the logarithm of each expert's share of the stake, (H,); the shares sum to 1."""
    shares = np.concatenate([bettor.shares for bettor in bettors])
    logs: Values = np.log(shares / shares.sum())
    return logs


def _block_size(labels: int) -> int:
    """Return the size of the block that starts after this number of labels."""
    return min(max(labels // 8, _MIN_BLOCK), max(_USUAL_BLOCK, min(labels // 100, _MAX_BLOCK)))


def _reserve(blocks: int) -> float:
    """Return the share of the stake that is in reserve after this number of blocks has started.

    It is 1, then 0.15 / log₂(blocks + 1): most of the stake is in play from the first block, and
    the rest falls so slowly that a drift from block k on costs little more than log k.
    """
    return 1.0 if blocks == 0 else 0.15 / math.log2(blocks + 1)


def _to_json(logs: Values) -> list[float | None]:
    """Return logarithms with None for −∞, which JSON does not have."""
    return [None if log == -math.inf else float(log) for log in logs]


def _from_json(logs: list[float | None]) -> Values:
    return np.array([-math.inf if log is None else log for log in logs])
