"""Mean confidence, mean entropy, and the predictions with a confidence above 0.99 (S99)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import SMALLEST_PROBABILITY, Floats, Numbers
from recalib.metrics.base import Better, Estimate, UndefinedMetricError, Unit
from recalib.metrics.mean_metrics import RowFraction, RowMean
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import row_chunks
from recalib.stats.sums import Means

_THRESHOLD = 0.99


class MeanConfidence(RowMean):
    """The mean probability of the predicted class; range [0, 1], at least 1/K.

    Accuracy minus mean confidence is the gap of a single bin with all rows, a lower bound for the
    ECE of any bins. Ties have no effect. Unbiased; the interval is Student's.

    Use it where compared with the accuracy, its difference has the sign of the error.

    Source: paper 000, eq. 4, of all rows.
    """

    name: ClassVar[str] = "mean_confidence"
    summary: ClassVar[str] = "mean probability of the predicted class"
    better: ClassVar[Better | None] = None
    state_kind: ClassVar[str] = "mean_confidence"

    @staticmethod
    def scores(predictions: Predictions) -> Floats:
        return predictions.confidences

    def estimate(self, state: Means, level: float | None = None) -> Estimate:
        estimate = super().estimate(state, level)
        if estimate.high is None:
            return estimate
        return replace(estimate, high=max(min(estimate.high, 1.0), estimate.value))


class MeanEntropy(RowMean):
    """The mean of −Σ_k p_k log p_k, in nats; range [0, log K].

    0 log 0 is 0. A uniform prediction has log K; for a calibrated classifier the value equals the
    mean NLL. Ties have no effect. Unbiased; the interval is Student's.

    Use it where the spread of all probabilities matters, not only the largest.

    Source: paper 002, whose negative entropy is a score of confidence; paper 004, App. A.
    """

    name: ClassVar[str] = "mean_entropy"
    summary: ClassVar[str] = "mean entropy of the probabilities, in nats"
    unit: ClassVar[Unit] = "nats"
    better: ClassVar[Better | None] = None
    state_kind: ClassVar[str] = "mean_entropy"

    @staticmethod
    def scores(predictions: Predictions) -> Numbers:
        # log p is clipped at log 1e-38.
        probabilities = predictions.probabilities
        dtype = np.promote_types(probabilities.dtype, np.float32)
        entropies = np.empty(len(predictions))
        for rows in row_chunks(probabilities.shape):
            p = probabilities[rows].astype(dtype, copy=False)
            logs = np.maximum(p, dtype.type(SMALLEST_PROBABILITY))
            np.log(logs, out=logs)
            logs *= p
            entropies[rows] = -logs.sum(axis=1, dtype=np.float64)
        return np.maximum(entropies, 0.0)  # no −0


class S99(RowFraction):
    """|S99|: the fraction of rows with a confidence above 0.99; range [0, 1].

    0.99 is rounded to the dtype of the probabilities; a confidence equal to it does not count.
    Ties have no effect.
    Unbiased; the interval is Wilson's.

    Use it where only rows above 99% are automated.

    Source: paper 004, App. F, |S99|.
    """

    name: ClassVar[str] = "s99"
    summary: ClassVar[str] = "fraction of rows with a confidence above 0.99"
    better: ClassVar[Better | None] = None
    state_kind: ClassVar[str] = "s99"

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.bool_]:
        return _is_s99(predictions)


class S99Accuracy(RowFraction):
    """The accuracy of the rows with a confidence above 0.99; range [0, 1].

    Not defined without such rows; `s99` is then 0. Ties as in `s99` and `accuracy`. Unbiased; the
    interval is Wilson's.

    Use it where only rows above 99% are automated: it says how many of them are right.

    Source: paper 004, App. F, the accuracy next to |S99|.
    """

    name: ClassVar[str] = "s99_accuracy"
    summary: ClassVar[str] = "accuracy of rows with a confidence above 0.99"
    better: ClassVar[Better | None] = "higher"
    state_kind: ClassVar[str] = "s99_accuracy"

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.bool_]:
        return predictions.correct

    def add(self, state: Means, predictions: Predictions, weights: Numbers | None = None) -> None:
        at = _is_s99(predictions)
        state.add(predictions.correct[at], None if weights is None else weights[at])

    def estimate(self, state: Means, level: float | None = None) -> Estimate:
        if state.count == 0:
            accepted = f"a confidence above {_THRESHOLD}"
            raise UndefinedMetricError("probabilities", found="none", accepted=accepted)
        return super().estimate(state, level)


def _is_s99(predictions: Predictions) -> NDArray[np.bool_]:
    p = predictions.confidences
    return p > p.dtype.type(_THRESHOLD)
