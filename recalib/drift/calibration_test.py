"""A sequential test of calibration, valid at every number of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recalib.core.arrays import Numbers
from recalib.core.field_types import Fraction, check_fields
from recalib.core.monitoring_settings import Tolerance
from recalib.drift.bettors import Bettor, default_bettors
from recalib.drift.row_groups import Sizes, unit_means
from recalib.drift.validation import check_rows
from recalib.errors import InputError

#: Labels of a block.
_BLOCK = 128
#: Onsets this close in log evidence (nats) count as ties. The latest is used: a refit on labels
#: from before the drift does more harm than a refit on fewer labels.
_TIE_NATS = 1.0
#: The version of the stored state, and the log shares of the bettors of earlier versions.
STATE_VERSION = 3
_EARLIER_SHARES = {1: np.log([0.225, 0.225, 0.05] * 2), 2: np.log([0.9, 0.1])}


@dataclass(eq=False)
class CalibrationTest:
    """A sequential test of calibration, valid at any time; evidence E in [0, ∞).

    The null hypothesis: given the rows before, each row is correct with a probability within
    `tolerance` ε of its confidence p. A bettor predicts q before the label is seen. With p* = q
    clipped to [p − ε, p + ε], the row multiplies the bettor's wealth by

        e = (q / p*)^a · ((1 − q) / (1 − p*))^(1 − a),   a = 1 if the row is correct, else 0,

    whose mean under the hypothesis is at most 1. E is the weighted mean of the wealth over the
    bettors and over their start: a part of the stake is reserved for each later block, so that past
    losses do not have to be won back. Under the hypothesis P(E ever reaches 1/α) ≤ α (Ville).

    Rows of a group depend on each other, and bet once: the group multiplies the wealth by the mean
    of its rows' e, each with a q from before the group. The hypothesis says of each row of a group
    only that it is correct with a probability within ε of its confidence, given the groups before.
    So each e has a mean of at most 1, and the mean of these has too, for any dependence within the
    group: E remains a nonnegative supermartingale, from group to group. With a common q and p*, it
    is a bet on the mean outcome, 1 + λ(ȳ − p*) with λ = (q − p*) / (p*(1 − p*)). A row without a
    group is a group of its own.

    Given the prediction, the arrival of a label must not depend on the outcome: if errors are
    labelled more often than correct predictions, a calibrated stream looks miscalibrated.

    `suspicion` is the cumulative sum (CUSUM) of the same bets: the wealth of each bettor since the
    block at whose start it was lowest, as if it had started there with the full stake. It is faster
    but has no such guarantee: under the hypothesis it needs on average at least L blocks to reach a
    level L, because it is below the Shiryaev-Roberts statistic.

    The state depends on the order of the rows, from which the bettors learn. So the states of two
    parts of a stream cannot be merged: one process tests all labels of a stream.

    Source: Ville 1939; Waudby-Smith and Ramdas, Estimating means of bounded random variables by
    betting, JRSS B 2024; Shin, Ramdas and Rinaldo, E-detectors, 2022.

    Examples
    --------
    >>> from recalib.drift import CalibrationTest
    >>> test = CalibrationTest(alpha=0.05, tolerance=0.02)
    >>> test.update(np.full(500, 0.95), np.arange(500) % 2)  # half are right
    >>> test.rejected
    True
    """

    alpha: Fraction = 0.05
    tolerance: Tolerance = 0.02
    bettors: list[Bettor] = field(default_factory=default_bettors, repr=False)
    #: Whether p is a least probability: the hypothesis is that none is below p − ε, and p* is q
    #: raised to p − ε.
    at_least: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        #: Labels seen (a group counts once), blocks started, and the label at which the test first
        #: rejected.
        self.labels = 0
        self.blocks = 0
        self.rejected_at: int | None = None
        #: log of each bettor's share of the stake and of its wealth from the stake in play, (H,).
        shares = np.array([bettor.share for bettor in self.bettors])
        self._shares: Numbers = np.log(shares / shares.sum())
        self._staked = np.full(len(shares), -math.inf)
        #: log of each bettor's total wealth, its lowest value at the start of a block, and the
        #: last label before which it was within `_TIE_NATS` of that value.
        self._won = np.zeros(len(shares))
        self._lowest = np.zeros(len(shares))
        self._lowest_at = np.zeros(len(shares), np.int64)
        #: The label at which the next block starts.
        self._next_block = 0

    @property
    def log_evidence(self) -> float:
        """The current log E; it may decrease after a rejection."""
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
        """The index of the bettor that has won most since its lowest value."""
        return int(np.argmax(self._won - self._lowest))

    @property
    def onsets(self) -> list[int]:
        """The number of labels before each bettor began to win, at its lowest value.

        This is the CUSUM estimate of the change point; it tends to be late.
        """
        return self._lowest_at.tolist()

    @property
    def onset(self) -> int:
        """The number of labels before the evidence began to grow; refit on the labels after it."""
        return self.onsets[self.leader]

    @property
    def suspicion(self) -> float:
        """The logarithm of the CUSUM, a mean over bettors; 0 if all are at their lowest value."""
        since = self._won - np.minimum(self._won, self._lowest)
        return max(0.0, float(np.logaddexp.reduce(since + self._shares)))

    def update(self, confidences: Numbers, correct: Numbers, sizes: Sizes = None) -> None:
        """Process rows in the order of their predictions; the size of a call makes no difference.

        Parameters
        ----------
        confidences: (N,), in [0, 1].
        correct: (N,), zeros and ones or booleans.
        sizes: the numbers of rows of the groups, (U,), which sum to N: the rows of a group follow
            each other, and are in one call. By default each row is its own.

        Raises
        ------
        InputError: shapes differ, or a value is out of range; nothing is processed.
        """
        confidences, correct = check_rows(confidences, correct)
        ends = np.arange(len(confidences) + 1)
        if sizes is not None:
            ends = np.concatenate([[0], np.cumsum(sizes)])
            if ends[-1] != len(confidences) or np.any(sizes < 1):
                found, accepted = f"a sum of {ends[-1]}", f"numbers from 1, {len(confidences)} rows"
                raise InputError("sizes", found=found, accepted=accepted)
        start, units = 0, len(ends) - 1
        while start < units:
            if self.labels == self._next_block:
                self._start_block()
            stop = min(start + self._next_block - self.labels, units)
            rows = slice(ends[start], ends[stop])
            part = None if sizes is None else sizes[start:stop]
            self._process(confidences[rows], correct[rows], part)
            start = stop

    def __eq__(self, other: object) -> bool:
        """Return whether options and state are equal."""
        if not isinstance(other, CalibrationTest):
            return NotImplemented
        mine, others = (
            (test.alpha, test.tolerance, test.at_least, [type(bettor) for bettor in test.bettors])
            for test in (self, other)
        )
        return mine == others and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
        return {
            "version": STATE_VERSION,
            "labels": self.labels,
            "blocks": self.blocks,
            "rejected_at": self.rejected_at,
            "staked": _to_json(self._staked),
            "won": self._won.tolist(),
            "lowest": self._lowest.tolist(),
            "lowest_at": self._lowest_at.tolist(),
            "next_block": self._next_block,
            "bettors": [bettor.state() for bettor in self.bettors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the options and bettors must be the same.

        A state of an earlier version has other bettors. Its evidence and its suspicion continue
        exactly, with the bettors of this version, which start anew: a supermartingale may change
        its bets at any time, so the error rate stays α.

        Raises
        ------
        InputError: the state is of another version or of other bettors.
        """
        version = state.get("version", 1)
        if version != STATE_VERSION and version not in _EARLIER_SHARES:
            raise InputError("state.version", found=str(version), accepted=f"1 to {STATE_VERSION}")
        if version == STATE_VERSION:
            self._restore_bettors(state)
        self.labels, self.blocks = int(state["labels"]), int(state["blocks"])
        self.rejected_at = state["rejected_at"]
        staked, won, lowest = (_from_json(state[name]) for name in ("staked", "won", "lowest"))
        lowest_at = np.array(state["lowest_at"], np.int64)
        if version in _EARLIER_SHARES:
            leader, shares = np.argmax(won - lowest), _EARLIER_SHARES[version]
            ours = np.zeros(len(self.bettors))
            staked = ours + np.logaddexp.reduce(staked + shares)
            won = ours + np.logaddexp.reduce(won - np.minimum(won, lowest) + shares)
            lowest, lowest_at = ours, np.full(len(ours), lowest_at[leader])
        self._staked, self._won, self._lowest, self._lowest_at = staked, won, lowest, lowest_at
        self._next_block = int(state.get("next_block", self.labels))

    def _restore_bettors(self, state: dict[str, Any]) -> None:
        if len(state["bettors"]) != len(self.bettors):
            found, accepted = f"{len(state['bettors'])} bettors", str(len(self.bettors))
            raise InputError("state.bettors", found=found, accepted=accepted)
        for bettor, saved in zip(self.bettors, state["bettors"], strict=True):
            bettor.restore(saved)

    def _start_block(self) -> None:
        """Start a block, before any of its rows is seen."""
        self._next_block = self.labels + _BLOCK
        # The stake reserved for this block is now in play.
        share = math.log(_reserve(self.blocks) - _reserve(self.blocks + 1))
        self._staked = np.logaddexp(self._staked, share)
        self._lowest = np.minimum(self._lowest, self._won)
        low = self._won <= self._lowest + _TIE_NATS
        self._lowest_at = np.where(low, self.labels, self._lowest_at)
        self.blocks += 1
        for bettor in self.bettors:
            bettor.start_block()

    def _process(self, confidences: Numbers, correct: Numbers, sizes: Sizes) -> None:
        """Process units of one block."""
        q = np.stack([bettor.predict(confidences, correct, sizes) for bettor in self.bettors])
        gains = unit_means(self._gains(q, confidences, correct).T, sizes).T
        path = np.cumsum(np.log(gains), axis=1)
        self._check_rejection(self._staked[:, None] + path)
        self._staked, self._won = self._staked + path[:, -1], self._won + path[:, -1]
        self.labels += path.shape[1]

    def _gains(self, q: Numbers, confidences: Numbers, correct: Numbers) -> Numbers:
        """Return e of each row, (H, N)."""
        # If p* is 0 or 1, the hypothesis excludes one outcome. If it occurs all the same, the clip
        # bounds the gain.
        low = np.minimum(np.maximum(confidences - self.tolerance, 1e-9), 1 - 1e-9)
        high = np.minimum(np.maximum(confidences + self.tolerance, 1e-9), 1 - 1e-9)
        near = np.maximum(q, low) if self.at_least else np.minimum(np.maximum(q, low), high)
        right = correct == 1
        return np.where(right, q, 1 - q) / np.where(right, near, 1 - near)

    def _check_rejection(self, staked: Numbers) -> None:
        # A mean is at most its largest term, and the reserve is at most 1: most calls end here.
        if self.rejected or staked.max() < self.threshold - math.log(2):
            return
        evidence = np.logaddexp.reduce(staked + self._shares[:, None], axis=0)
        evidence = np.logaddexp(evidence, math.log(_reserve(self.blocks)))
        reached = np.flatnonzero(evidence >= self.threshold)
        if len(reached):
            self.rejected_at = self.labels + int(reached[0]) + 1

    def _evidence(self, staked: Numbers) -> float:
        wealth = float(np.logaddexp.reduce(staked + self._shares))
        return float(np.logaddexp(wealth, math.log(_reserve(self.blocks))))


def _reserve(blocks: int) -> float:
    """Return the share of the stake that is in reserve after this number of blocks has started.

    It is 1, then 0.15 / log₂(blocks + 1): most of the stake is in play from the first block, and
    the rest falls so slowly that a drift from block k on costs little more than log k.
    """
    return 1.0 if blocks == 0 else 0.15 / math.log2(blocks + 1)


def _to_json(logs: Numbers) -> list[float | None]:
    """Return logarithms with None for −∞, which JSON does not have."""
    return [None if log == -math.inf else float(log) for log in logs]


def _from_json(logs: list[float | None]) -> Numbers:
    return np.array([-math.inf if log is None else log for log in logs])
