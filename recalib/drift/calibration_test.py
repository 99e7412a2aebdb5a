"""Is a calibrator still telling the truth? A test that may be looked at after every label."""

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

#: Rows of a block: few at first, when there is little to learn from, soon a hundred or so, and
#: twice as many in a long stream, which halves what a row costs.
_FEWEST, _USUAL, _MOST = 16, 128, 256
#: Begins of evidence that are so many nats apart cannot be told apart: the latest is taken, since
#: a refit does better without the last good labels than with them.
_SLACK = 1.0


@dataclass
class CalibrationTest:
    """A sequential test of calibration, valid at any time; evidence E in [0, ∞).

    The hypothesis is that each row is right with a probability within `tolerance` ε of its
    confidence p, whatever the rows before. Against it a bettor says q before the label is seen,
    and with p* = q clipped to [p − ε, p + ε] the row multiplies what it holds by

        e = (q / p*)^a · ((1 − q) / (1 − p*))^(1 − a),   a = 1 where the row is right, else 0,

    whose mean under the hypothesis is at most 1. E is the mean over the bettors' hands, by their
    shares, and over when they begin: some of the stake is set aside for every later block of rows,
    so that a long unlucky past does not have to be won back. Under the hypothesis
    P(E ever reaches 1/α) ≤ α (Ville).

    That needs labels whose arrival does not depend on the outcome given the prediction: where
    errors are labelled more often than what was right, a calibrated stream looks miscalibrated.

    `suspicion` is the cumulative sum of the same bets: of each hand, what it has won since the
    block at whose beginning it stood lowest, as though it had begun there with the full stake. It
    is quicker, and has no such guarantee: under the hypothesis it takes at least as many blocks on
    average to reach a level as the level says, since it is below the Shiryaev-Roberts sum.

    Source: Ville 1939; Waudby-Smith and Ramdas, Estimating means of bounded random variables by
    betting, JRSS B 2024; Shin, Ramdas and Rinaldo, E-detectors, 2022.
    """

    alpha: float = 0.05
    tolerance: float = 0.02
    bettors: list[Bettor] = field(default_factory=default_bettors)

    def __post_init__(self) -> None:
        check_option("alpha", self.alpha, 0 < self.alpha < 1, "0 < alpha < 1")
        check_option("tolerance", self.tolerance, 0 <= self.tolerance < 0.5, "0 ≤ tolerance < 0.5")
        #: Labels seen, blocks begun, and the label at which the test first rejected.
        self.labels = 0
        self.blocks = 0
        self.rejected_at: int | None = None
        #: log of each hand's share of the stake, (H,).
        self._shares = _log_shares(self.bettors)
        hands = len(self._shares)
        self._staked = np.full(hands, -math.inf)
        #: log of what each hand has won in all, the lowest that was at the beginning of a block,
        #: and the last label before which it was about that low.
        self._won = np.zeros(hands)
        self._lowest = np.zeros(hands)
        self._lowest_at = np.zeros(hands, np.int64)
        #: The block that is not complete: its size, and its rows so far.
        self._size = 0
        self._open: tuple[Values, Values] = np.zeros(0), np.zeros(0)

    @property
    def log_evidence(self) -> float:
        """log E now; it may fall again after it has rejected."""
        return self._evidence(self._staked)

    @property
    def threshold(self) -> float:
        """What log E must reach to reject, log 1/α."""
        return -math.log(self.alpha)

    @property
    def rejected(self) -> bool:
        """Whether E has ever reached 1/α."""
        return self.rejected_at is not None

    @property
    def leader(self) -> int:
        """Which bettor has won most since it stood lowest."""
        return int(np.argmax(self._won - self._lowest))

    @property
    def onsets(self) -> list[int]:
        """How many labels came before each bettor began to win: where it last stood lowest.

        A cumulative sum's estimate of the time of a change, and rather late than early.
        """
        found: list[int] = self._lowest_at.tolist()
        return found

    @property
    def onset(self) -> int:
        """How many labels came before the evidence began to grow: refit on those after it."""
        return self.onsets[self.leader]

    @property
    def suspicion(self) -> float:
        """The logarithm of the cumulative sum, the mean over hands; 0 where all stand lowest."""
        since = self._won - np.minimum(self._won, self._lowest)
        return float(np.logaddexp.reduce(since + self._shares))

    def update(self, confidences: Values, correct: Values) -> None:
        """Take rows in the order of their predictions; in how many parts makes no difference.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.

        Raises
        ------
        InputError: shapes that differ, or values out of range. Nothing is taken then.
        """
        confidences, correct = check_rows(confidences, correct)
        start = 0
        while start < len(confidences):
            if not self._size:
                self._begin()
            rows = slice(start, start + self._size - len(self._open[0]))
            self._take(confidences[rows], correct[rows])
            start = rows.stop

    def state(self) -> dict[str, Any]:
        """Return all that has been learnt, as JSON, options apart."""
        return {
            "labels": self.labels,
            "blocks": self.blocks,
            "rejected_at": self.rejected_at,
            "staked": _plain(self._staked),
            "won": self._won.tolist(),
            "lowest": self._lowest.tolist(),
            "lowest_at": self._lowest_at.tolist(),
            "size": self._size,
            "open": [rows.tolist() for rows in self._open],
            "bettors": [bettor.state() for bettor in self.bettors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned, with the same options and bettors.

        Raises
        ------
        InputError: it is of other bettors, such as an earlier version's.
        """
        if len(state["bettors"]) != len(self.bettors):
            found, accepted = f"{len(state['bettors'])} bettors", str(len(self.bettors))
            raise InputError("state.bettors", found=found, accepted=accepted)
        for bettor, saved in zip(self.bettors, state["bettors"], strict=True):
            bettor.restore(saved)
        self.labels, self.blocks = int(state["labels"]), int(state["blocks"])
        self.rejected_at = state["rejected_at"]
        self._staked = _array(state["staked"])
        self._won, self._lowest = np.array(state["won"]), np.array(state["lowest"])
        self._lowest_at = np.array(state["lowest_at"], np.int64)
        self._size = int(state["size"])
        p, y = (np.array(rows, np.float64) for rows in state["open"])
        self._open = p, y

    def _begin(self) -> None:
        """Begin a block, before anything of it is seen."""
        self._size = _block_size(self.labels)
        # What the stake set aside for this block joins.
        share = math.log(_aside(self.blocks) - _aside(self.blocks + 1))
        self._staked = np.logaddexp(self._staked, share)
        self._lowest = np.minimum(self._lowest, self._won)
        low = self._won <= self._lowest + _SLACK
        self._lowest_at = np.where(low, self.labels, self._lowest_at)
        self.blocks += 1

    def _take(self, confidences: Values, correct: Values) -> None:
        """Take rows of the open block; what they teach is learnt when it is complete."""
        odds = log_odds(confidences)
        q = np.concatenate([one.predict(confidences, odds) for one in self.bettors])
        path = np.cumsum(self._gains(q, confidences, correct), axis=1)
        self._look_for_rejection(self._staked[:, None] + path)
        won = path[:, -1]
        self._staked, self._won = self._staked + won, self._won + won
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

    def _gains(self, q: Values, confidences: Values, correct: Values) -> Values:
        """Return log e of each row, (H, N)."""
        # Where p* is 0 or 1 the other outcome cannot be: if it comes all the same, q never staked
        # all, and what it wins is bounded by this.
        low = np.minimum(np.maximum(confidences - self.tolerance, 1e-9), 1 - 1e-9)
        high = np.minimum(np.maximum(confidences + self.tolerance, 1e-9), 1 - 1e-9)
        near = np.minimum(np.maximum(q, low), high)
        right = correct == 1
        gains: Values = np.log(np.where(right, q, 1 - q) / np.where(right, near, 1 - near))
        return gains

    def _look_for_rejection(self, staked: Values) -> None:
        # No mean is above its largest part; what is set aside is below 1.
        if self.rejected or staked.max() < self.threshold - math.log(2):
            return
        evidence = np.logaddexp.reduce(staked + self._shares[:, None], axis=0)
        evidence = np.logaddexp(evidence, math.log(_aside(self.blocks)))
        reached = np.flatnonzero(evidence >= self.threshold)
        if len(reached):
            self.rejected_at = self.labels + int(reached[0]) + 1

    def _evidence(self, staked: Values) -> float:
        held = float(np.logaddexp.reduce(staked + self._shares))
        return float(np.logaddexp(held, math.log(_aside(self.blocks))))


def _log_shares(bettors: list[Bettor]) -> Values:
    """Return the logarithm of each hand's share of the stake, (H,): in all one."""
    shares = np.concatenate([one.shares for one in bettors])
    logs: Values = np.log(shares / shares.sum())
    return logs


def _block_size(labels: int) -> int:
    """Return the rows of the block that begins after so many labels."""
    return min(max(labels // 8, _FEWEST), max(_USUAL, min(labels // 100, _MOST)))


def _aside(blocks: int) -> float:
    """Return which share of the stake is still set aside once so many blocks have begun.

    All of it, then 0.15 / log₂(blocks + 1): most begins at once, and loses next to nothing while
    nothing is wrong; what is left falls so slowly that a begin at block k costs log k and little
    more.
    """
    return 1.0 if blocks == 0 else 0.15 / math.log2(blocks + 1)


def _plain(logs: Values) -> list[float | None]:
    """JSON has no −∞."""
    return [None if one == -math.inf else float(one) for one in logs]


def _array(logs: list[float | None]) -> Values:
    return np.array([-math.inf if one is None else one for one in logs])
