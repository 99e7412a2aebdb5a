"""Who bets against a calibrator: predictions of correctness, made before a label is seen.

A bettor looks at the confidences of a block of rows and says how often it believes them right;
then it is shown which were. Whatever it does, the test in `calibration_test.py` is valid, because
it has seen no label of the block. The better it predicts, the sooner drift is found.

Rows come in blocks, so that work on them is done by arrays: a bettor is at most a block behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.special
from numpy.typing import NDArray

__all__ = ["BETTORS", "Bettor", "BinnedBettor", "PlattBettor"]

Values = NDArray[np.float64]

#: Confidences are kept this far from 0 and 1: a bettor may stake all, but not more than once.
_EDGE = 1e-6


class Bettor(ABC):
    """Predicts, then learns."""

    @abstractmethod
    def predict(self, confidences: Values) -> Values:
        """Return how probably each row is right, (N,), inside (0, 1)."""

    @abstractmethod
    def learn(self, confidences: Values, correct: Values) -> None:
        """See which rows of the block were right, (N,) zeros and ones."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what it has learnt, as JSON."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""


@dataclass
class PlattBettor(Bettor):
    """Logistic regression of correctness on the confidence's log-odds, learnt as rows come.

    q = σ(a + b·logit c), starting from a = 0, b = 1, which is the calibrator's own word, with a
    normal prior around it of `strength` rows. Each block is one Newton step of the posterior's
    mode; its precision grows by the block's, and fades by `memory` a row.

    Source: Platt 1999; the online form is that of an extended Kalman filter.
    """

    #: Share of what is known that a row leaves of the rows before it; 1 forgets nothing.
    memory: float = 1.0
    strength: float = 10.0
    _mode: Values = field(default_factory=lambda: np.array([0.0, 1.0]))
    _precision: Values = field(init=False)

    def __post_init__(self) -> None:
        self._precision = self._prior()

    def predict(self, confidences: Values) -> Values:
        q: Values = scipy.special.expit(_features(confidences) @ self._mode)
        return np.clip(q, _EDGE, 1 - _EDGE)

    def learn(self, confidences: Values, correct: Values) -> None:
        kept = self.memory ** len(confidences)
        self._precision = kept * self._precision + (1 - kept) * self._prior()
        x = _features(confidences)
        q = scipy.special.expit(x @ self._mode)
        self._precision += (x * (q * (1 - q))[:, None]).T @ x
        slope = (correct - q) @ x
        self._mode = self._mode + np.linalg.solve(self._precision, slope)
        # What the mode may have run off to on a block that can be separated.
        self._mode = np.clip(self._mode, [-8.0, 0.05], [8.0, 8.0])

    def state(self) -> dict[str, Any]:
        return {"mode": self._mode.tolist(), "precision": self._precision.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self._mode = np.array(state["mode"], np.float64)
        self._precision = np.array(state["precision"], np.float64)

    def _prior(self) -> Values:
        # A row's own precision at even odds is a quarter.
        return np.diag([0.25 * self.strength, 0.25 * self.strength])


@dataclass
class BinnedBettor(Bettor):
    """The mean residual of each bin of confidence, shrunk towards none.

    q = c + Σ(a − c) / (n + `strength`) over the rows of the bin so far: finds an error that is
    local, which no curve of two parameters can follow.
    """

    bins: ClassVar[int] = 15

    memory: float = 1.0
    strength: float = 50.0
    _counts: Values = field(default_factory=lambda: np.zeros(BinnedBettor.bins))
    _residuals: Values = field(default_factory=lambda: np.zeros(BinnedBettor.bins))

    def predict(self, confidences: Values) -> Values:
        shift = self._residuals / (self._counts + self.strength)
        q: Values = confidences + shift[self._places(confidences)]
        return np.clip(q, _EDGE, 1 - _EDGE)

    def learn(self, confidences: Values, correct: Values) -> None:
        kept = self.memory ** len(confidences)
        places = self._places(confidences)
        self._counts = kept * self._counts + np.bincount(places, minlength=self.bins)
        gaps = np.bincount(places, correct - confidences, minlength=self.bins)
        self._residuals = kept * self._residuals + gaps

    def state(self) -> dict[str, Any]:
        return {"counts": self._counts.tolist(), "residuals": self._residuals.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self._counts = np.array(state["counts"], np.float64)
        self._residuals = np.array(state["residuals"], np.float64)

    def _places(self, confidences: Values) -> NDArray[np.intp]:
        return np.minimum((confidences * self.bins).astype(np.intp), self.bins - 1)


def BETTORS() -> list[Bettor]:  # noqa: N802
    """Return the bettors of a test, fresh."""
    return [PlattBettor(), PlattBettor(memory=0.999), BinnedBettor(), BinnedBettor(memory=0.999)]


def _features(confidences: Values) -> Values:
    clipped = np.clip(confidences, _EDGE, 1 - _EDGE)
    return np.stack([np.ones_like(clipped), scipy.special.logit(clipped)], axis=1)
