"""Bettors: models that predict correctness before the label is seen.

A bettor predicts the probability that each row of a block is correct; then it learns from the
labels of the block. The test in `calibration_test.py` is valid for every bettor, because a
prediction uses no label of its block. A better bettor finds drift sooner.

Rows are processed in blocks, as arrays, so a bettor lags by one block at most. A bettor may
consist of several experts, which differ in how fast they forget. Legend: N rows, H experts, B bins.
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

#: Confidences are clipped this far from 0 and 1: one wrong bet may not lose the whole stake.
_EDGE = 1e-6
#: An estimated deviation is shrunk by the factor max(1 − 1/z², 0), which is 0 within its noise,
#: z² ≤ 1 (James and Stein 1961). A calibrated stream then loses almost nothing, and experts with
#: short memories cost little.
_NOISE = 1.0


class Bettor(ABC):
    """Predicts the correctness of a block, then learns from it."""

    #: The share of the stake of each expert, (H,), up to a common factor.
    shares: tuple[float, ...]

    @abstractmethod
    def predict(self, confidences: Values, odds: Values) -> Values:
        """Return the probability that each row is correct, (H, N), inside (0, 1).

        `odds` are the `log_odds` of the confidences; both are (N,).
        """

    @abstractmethod
    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        """Learn from the block; `correct` is (N,), zeros and ones."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the learnt parameters as JSON."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; raise `InputError` for the state of another bettor."""


@dataclass
class PlattBettor(Bettor):
    """Online logistic regression of correctness on the log-odds of the confidence.

    q = σ(ℓ + a + b·ℓ) with ℓ = logit c. It starts from a = b = 0, the calibrator's confidence,
    with a normal prior worth `strength` rows. Each block is one Newton step on the mode of the
    posterior; the precision grows with each block and decays by a factor per row.

    Source: Platt 1999; the online form is that of an extended Kalman filter.
    """

    #: The forgetting factor per row of each expert; 1 forgets nothing.
    memories: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    strength: float = 10.0
    #: (H, 2) and (H, 2, 2).
    _mode: Values = field(init=False)
    _precision: Values = field(init=False)

    def __post_init__(self) -> None:
        # A row at even odds has precision q(1 − q) = 1/4.
        self._prior = np.diag([0.25 * self.strength, 0.25 * self.strength])
        self._mode = np.zeros((len(self.memories), 2))
        self._precision = np.tile(self._prior, (len(self.memories), 1, 1))

    def predict(self, confidences: Values, odds: Values) -> Values:
        mode = self._mode
        known = self._precision - self._prior
        squared = np.einsum("hi,hij,hj->h", mode, known, mode)
        mode = _shrinkage(squared)[:, None] * mode
        return _clip(_recalibrate(odds, mode))

    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        decay = (np.array(self.memories) ** len(odds))[:, None, None]
        self._precision = decay * self._precision + (1 - decay) * self._prior
        q = _recalibrate(odds, self._mode)
        weights, off = q * (1 - q), correct - q
        features = np.stack([np.ones_like(odds), odds, odds * odds], axis=1)
        moments = weights @ features
        self._precision += moments[:, [[0, 1], [1, 2]]]
        self._mode = self._mode + _solve(self._precision, off @ features[:, :2])
        # On a separable block the mode diverges.
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
    """The mean residual of each bin of confidence, shrunk towards 0.

    q = c + Σ(a − c) / (n + `strength`) over the past rows of the bin. It finds a local error,
    which a curve with two parameters cannot follow.
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
        # A bin of confidences near 1 has almost no variance: one error in it is strong evidence.
        squared = self._residuals**2 / np.maximum(self._variances, _EDGE)
        shift = _shrinkage(squared) * self._residuals / (self._counts + self.strength)
        return _clip(confidences + shift[:, self._indices(confidences)])

    def learn(self, confidences: Values, odds: Values, correct: Values) -> None:
        decay = (np.array(self.memories) ** len(confidences))[:, None]
        indices = self._indices(confidences)

        def by_bin(weights: Values | None = None) -> NDArray[Any]:
            return np.bincount(indices, weights, self.bins)

        self._counts = decay * self._counts + by_bin()
        self._variances = decay * self._variances + by_bin(confidences * (1 - confidences))
        self._residuals = decay * self._residuals + by_bin(correct - confidences)

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

    def _indices(self, confidences: Values) -> NDArray[np.intp]:
        return np.minimum((confidences * self.bins).astype(np.intp), self.bins - 1)


def default_bettors() -> list[Bettor]:
    """Return new bettors for a test.

    Experts that remember about 500 and 200 rows adapt quickly. An expert that forgets nothing finds
    errors just above the tolerance and gets a tenth of the stake. `python -m benchmarks.monitoring`
    measures it.
    """
    memories, shares = (0.998, 0.995, 1.0), (0.45, 0.45, 0.1)
    return [PlattBettor(memories, shares), BinnedBettor(memories, shares)]


def log_odds(confidences: Values) -> Values:
    """Return logit c, with c clipped inside (0, 1)."""
    odds: Values = scipy.special.logit(np.clip(confidences, _EDGE, 1 - _EDGE))
    return odds


def _check_memories(memories: tuple[float, ...], state: dict[str, Any]) -> None:
    stored = state.get("memories")
    if stored != list(memories):
        accepted = f"{list(memories)}: restart a test of another version"
        raise InputError("state.memories", found=str(stored), accepted=accepted)


def _shrinkage(squared: Values) -> Values:
    """Return the shrinkage factor of a deviation from z², its square over its variance."""
    return np.maximum(1 - _NOISE / np.maximum(squared, _NOISE), 0.0)


def _recalibrate(odds: Values, mode: Values) -> Values:
    """Return σ(ℓ + a + bℓ), (H, N)."""
    q: Values = scipy.special.expit(mode[:, 1:] * odds + mode[:, :1] + odds)
    return q


def _clip(q: Values) -> Values:
    """Return probabilities clipped inside (0, 1), in a third of the time of `np.clip`."""
    return np.minimum(np.maximum(q, _EDGE), 1 - _EDGE)


def _solve(matrices: Values, vectors: Values) -> Values:
    """Return the solutions of H systems of 2 equations, (H, 2)."""
    a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
    x, y = vectors.T
    return np.stack([c * x - b * y, a * y - b * x], axis=1) / (a * c - b * b)[:, None]
