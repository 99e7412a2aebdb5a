"""Who bets against a calibrator: predictions of correctness, made before a label is seen.

A bettor looks at the confidences of a block of rows and says how often it believes them right;
then it is shown which were. Whatever it does, the test in `calibration_test.py` is valid, because
it has seen no label of the block. The better it predicts, the sooner drift is found.

Rows come in blocks, so that work on them is done by arrays: a bettor is at most a block behind. It
may have several hands, which play the same game with different memories. Legend: N rows, H hands,
B bins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.errors import InputError

__all__ = ["Bettor", "BinnedBettor", "PlattBettor", "default_bettors", "log_odds"]

Values = NDArray[np.float64]

#: Confidences are kept this far from 0 and 1: a bettor may stake all, but not more than once.
_EDGE = 1e-6
#: What is believed of a deviation is this share, 1 − 1/z², of what was seen, and nothing where it
#: is within its own noise, z² ≤ 1 (James and Stein 1961). So next to nothing is lost while nothing
#: is wrong, and short memories, which are soon up to date, can be afforded.
_NOISE = 1.0


class Bettor(ABC):
    """Predicts, then learns."""

    #: How much of the stake each hand is given, beside the others', (H,).
    shares: tuple[float, ...]

    @abstractmethod
    def predict(self, confidences: Values, odds: Values) -> Values:
        """Return how probably each row is right, (H, N), inside (0, 1).

        `odds` are the `log_odds` of the confidences, (N,) both.
        """

    @abstractmethod
    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        """See which rows of the block were right, (N,) zeros and ones."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what it has learnt, as JSON."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned; raise `InputError` where it is another bettor's."""


@dataclass
class PlattBettor(Bettor):
    """Logistic regression of correctness on the confidence's log-odds, learnt as rows come.

    q = σ(ℓ + a + b·ℓ) with ℓ = logit c, starting from a = b = 0, which is the calibrator's own
    word, with a normal prior around it of `strength` rows. Each block is one Newton step of the
    posterior's mode; its precision grows by the block's, and fades by a memory a row.

    Source: Platt 1999; the online form is that of an extended Kalman filter.
    """

    #: Of each hand, the share of what is known that a row leaves of the rows before it; 1 forgets
    #: nothing.
    memories: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    strength: float = 10.0
    #: (H, 2) and (H, 2, 2).
    _mode: Values = field(init=False)
    _precision: Values = field(init=False)

    def __post_init__(self) -> None:
        # A row's own precision at even odds is a quarter.
        self._prior = np.diag([0.25 * self.strength, 0.25 * self.strength])
        self._mode = np.zeros((len(self.memories), 2))
        self._precision = np.tile(self._prior, (len(self.memories), 1, 1))

    def predict(self, confidences: Values, odds: Values) -> Values:
        mode = self._mode
        known = self._precision - self._prior
        squared = np.einsum("hi,hij,hj->h", mode, known, mode)
        mode = _believed(squared)[:, None] * mode
        return _inside(_moved(odds, mode))

    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        kept = (np.array(self.memories) ** len(odds))[:, None, None]
        self._precision = kept * self._precision + (1 - kept) * self._prior
        q = _moved(odds, self._mode)
        weights, off = q * (1 - q), correct - q
        features = np.stack([np.ones_like(odds), odds, odds * odds], axis=1)
        moments = weights @ features
        self._precision += moments[:, [[0, 1], [1, 2]]]
        self._mode = self._mode + _solved(self._precision, off @ features[:, :2])
        # What the mode may have run off to on a block that can be separated.
        self._mode = np.clip(self._mode, [-8.0, -0.95], [8.0, 7.0])

    def state(self) -> dict[str, Any]:
        return {
            "memories": list(self.memories),
            "mode": self._mode.tolist(),
            "precision": self._precision.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        _check_memories(self.memories, state)
        self._mode = np.array(state["mode"], np.float64)
        self._precision = np.array(state["precision"], np.float64)


@dataclass
class BinnedBettor(Bettor):
    """The mean residual of each bin of confidence, shrunk towards none.

    q = c + Σ(a − c) / (n + `strength`) over the rows of the bin so far: finds an error that is
    local, which no curve of two parameters can follow.
    """

    bins: ClassVar[int] = 15

    memories: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    strength: float = 50.0
    #: n, Σc(1 − c) and Σ(a − c), (H, B).
    _counts: Values = field(init=False)
    _variances: Values = field(init=False)
    _residuals: Values = field(init=False)

    def __post_init__(self) -> None:
        self._counts, self._variances, self._residuals = np.zeros(
            (3, len(self.memories), self.bins)
        )

    def predict(self, confidences: Values, odds: Values) -> Values:
        # A bin of rows that are quite sure has no variance, and one error in it says a lot.
        squared = self._residuals**2 / np.maximum(self._variances, _EDGE)
        shift = _believed(squared) * self._residuals / (self._counts + self.strength)
        return _inside(confidences + shift[:, self._places(confidences)])

    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        kept = (np.array(self.memories) ** len(confidences))[:, None]
        places = self._places(confidences)

        def by_bin(weights: Values | None = None) -> NDArray[Any]:
            return np.bincount(places, weights, self.bins)

        self._counts = kept * self._counts + by_bin()
        self._variances = kept * self._variances + by_bin(confidences * (1 - confidences))
        self._residuals = kept * self._residuals + by_bin(correct - confidences)

    def state(self) -> dict[str, Any]:
        return {
            "memories": list(self.memories),
            "counts": self._counts.tolist(),
            "variances": self._variances.tolist(),
            "residuals": self._residuals.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        _check_memories(self.memories, state)
        self._counts = np.array(state["counts"], np.float64)
        self._variances = np.array(state["variances"], np.float64)
        self._residuals = np.array(state["residuals"], np.float64)

    def _places(self, confidences: Values) -> NDArray[np.intp]:
        return np.minimum((confidences * self.bins).astype(np.intp), self.bins - 1)


def default_bettors() -> list[Bettor]:
    """Return the bettors of a test, fresh.

    Memories of 500 and 200 rows are soon up to date; one without end finds what is hardly more
    than is tolerated, and has a tenth of the stake. `python -m benchmarks.monitoring` measures it.
    """
    memories, shares = (0.998, 0.995, 1.0), (0.45, 0.45, 0.1)
    return [PlattBettor(memories, shares), BinnedBettor(memories, shares)]


def log_odds(confidences: Values) -> Values:
    """Return logit c, of c kept inside (0, 1)."""
    odds: Values = scipy.special.logit(np.clip(confidences, _EDGE, 1 - _EDGE))
    return odds


def _check_memories(memories: tuple[float, ...], state: dict[str, Any]) -> None:
    found = state.get("memories")
    if found != list(memories):
        accepted = f"{list(memories)}: a test of another version begins anew"
        raise InputError("state.memories", found=str(found), accepted=accepted)


def _believed(squared: Values) -> Values:
    """Return the share of a deviation that is believed, by its square over its variance."""
    return np.maximum(1 - _NOISE / np.maximum(squared, _NOISE), 0.0)


def _moved(odds: Values, mode: Values) -> Values:
    """Return σ(ℓ + a + bℓ), (H, N)."""
    q: Values = scipy.special.expit(mode[:, 1:] * odds + mode[:, :1] + odds)
    return q


def _inside(q: Values) -> Values:
    """Return probabilities inside (0, 1); a third of the time that `np.clip` takes."""
    return np.minimum(np.maximum(q, _EDGE), 1 - _EDGE)


def _solved(matrices: Values, vectors: Values) -> Values:
    """Return the solutions of H systems of two equations, (H, 2)."""
    a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
    x, y = vectors.T
    return np.stack([c * x - b * y, a * y - b * x], axis=1) / (a * c - b * b)[:, None]
