"""Fitting a temperature: against scikit-learn on the same logits, to the same optimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from benchmarks.timing import Goal, interleaved
from recalib.fitting.newton import fit_temperature

__all__ = ["run"]


class Logits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose decision function is its input."""

    def fit(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> Logits:
        self.classes_ = np.arange(x.shape[1])
        return self

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        return x.argmax(axis=1)

    def decision_function(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x


def run() -> list[Goal]:
    """Measure 25,000 x 1000 float64 against CalibratedClassifierCV(method="temperature")."""
    rng = np.random.default_rng(0)
    # float64 for both: on float32, scikit-learn stops 2e-4 away from the optimum.
    logits = rng.normal(size=(25_000, 1000)) * 3
    labels = np.empty(len(logits), np.int64)
    for rows in np.array_split(np.arange(len(logits)), 25):
        noise = rng.gumbel(size=(len(rows), 1000))
        labels[rows] = (logits[rows] / 2 + noise).argmax(axis=1)
    frozen = FrozenEstimator(Logits().fit(logits, labels))
    found: dict[str, float] = {}

    def ours() -> None:
        found["ours"] = fit_temperature(logits, labels).temperature

    def theirs() -> None:
        fitted = CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels)
        (calibrated,) = fitted.calibrated_classifiers_
        found["theirs"] = 1 / float(calibrated.calibrators[0].beta_)

    seconds = interleaved({"ours": ours, "theirs": theirs}, 3)
    ratio = min(seconds["theirs"]) / min(seconds["ours"])
    apart = abs(found["ours"] / found["theirs"] - 1)
    detail = (
        f"; {min(seconds['ours']):.2f} s against {min(seconds['theirs']):.2f} s, "
        f"T = {found['ours']:.7f} and {found['theirs']:.7f}"
    )
    return [
        Goal(
            "temperature by NLL, 25,000x1000: scikit-learn's time over ours",
            ratio,
            5,
            False,
            detail,
        ),
        Goal("  relative distance of the optima, in 1e-5", apart * 1e5, 1, True),
    ]
