"""Area under the ROC curve of two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from recalib.core.arrays import Numbers
from recalib.metrics.base import Better, Estimate, StreamingMetric, UndefinedMetricError, Unit
from recalib.metrics.mean_metrics import wilson
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import group_sums
from recalib.stats.sums import Cells


class RocAuc(StreamingMetric[Cells]):
    """Area under the ROC curve, P(s₁ > s₀) + P(s₁ = s₀)/2, for K = 2; range [0, 1].

    s₁ and s₀ are the scores of a row of class 1 and of one of class 0. The score is the log-odds of
    class 1 if logits are given, otherwise P(y = 1). Ties count half, as midranks do. Maps that
    increase in the log-odds do not change it. Unbiased. It is not defined if all rows have one
    label.

    The interval is Wilson's for AUC as a fraction of n rows, where n gives A(1 − A)/n the larger of
    two variances: that of DeLong, which is estimated from the rows, and that of Hanley and McNeil
    in Newcombe's form, which does not vanish for few rows or A = 1. The size of a weighted class is
    Kish's effective size.

    Streams: rows of a cell of `Cells` count as tied. The difference is at most
    `error_bound`, half of the pairs in a cell.

    Use it where the threshold of two classes is chosen later; it says nothing of calibration.

    Source: DeLong, DeLong and Clarke-Pearson, Biometrics 44, 1988; Hanley and McNeil, Radiology
    143, 1982; Newcombe, Statistics in Medicine 25, 2006, part 2, method 5.
    """

    name: ClassVar[str] = "roc_auc"
    summary: ClassVar[str] = "area under the ROC curve of P(y = 1); two classes"
    unit: ClassVar[Unit] = "score"
    better: ClassVar[Better | None] = "higher"
    state_kind: ClassVar[str] = "positive_cells"

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        return classes == 2

    def state(self, classes: int, *, weighted: bool = False) -> Cells:
        return Cells(weighted=weighted)

    def add(self, state: Cells, predictions: Predictions, weights: Numbers | None = None) -> None:
        state.add(_probabilities(predictions), predictions.labels == 1, weights)

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        w = np.ones(len(predictions)) if weights is None else weights
        return _Ranks.from_predictions(predictions, w).estimate(level)

    def estimate(self, state: Cells, level: float | None = None) -> Estimate:
        return _Ranks.from_cells(state).estimate(level)

    def error_bound(self, state: Cells) -> float:
        return _Ranks.from_cells(state).error_bound()


def roc_auc_of_bins(zeros: ArrayLike, ones: ArrayLike) -> float | None:
    """Return the area of rows that are only counted in bins of ascending P(y = 1).

    Parameters
    ----------
    zeros, ones: (B,), the rows of class 0 and of class 1 in each bin, which count as tied.

    Returns
    -------
    The area, or None without rows of both classes.
    """
    counts = np.array([zeros, ones], np.float64)
    if not counts.any(axis=1).all():
        return None
    return _Ranks(counts, counts).estimate(None).value


def _scores(predictions: Predictions) -> Numbers:
    """Return the log-odds of class 1, or P(y = 1) of predictions from probabilities, (N,)."""
    if predictions.scores is predictions.probabilities:
        return predictions.probabilities[:, 1].astype(np.float64, copy=False)
    with np.errstate(over="ignore"):  # differences of the largest float64
        return np.subtract(predictions.scores[:, 1], predictions.scores[:, 0], dtype=np.float64)


def _probabilities(predictions: Predictions) -> Numbers:
    """Return a number in [0, 1] that increases in the score, (N,)."""
    scores = _scores(predictions)
    if predictions.scores is predictions.probabilities:
        return scores
    return scipy.special.expit(scores)


@dataclass(frozen=True, eq=False)
class _Ranks:
    """Groups of rows with tied scores, by ascending score, at least one row of each class.

    Arrays are (2, G), of classes 0 and 1: Σw and Σw².
    """

    weights: Numbers
    squared_weights: Numbers

    def __post_init__(self) -> None:
        if not self.weights.any(axis=1).all():
            raise UndefinedMetricError("labels", found="one class", accepted="rows of both classes")

    @classmethod
    def from_predictions(cls, predictions: Predictions, weights: Numbers) -> _Ranks:
        values, group = np.unique(_scores(predictions), return_inverse=True)
        cells = group + len(values) * (predictions.labels == 1)
        sums = (group_sums(cells, w, 2 * len(values)) for w in (weights, weights**2))
        return cls(*(part.reshape(2, -1) for part in sums))

    @classmethod
    def from_cells(cls, state: Cells) -> _Ranks:
        sums = (sums.select(state.filled) for sums in (state.moments, state.squared))
        return cls(*(moments.by_event() for moments in sums))

    def estimate(self, level: float | None) -> Estimate:
        # Of each class the share of the other class that it wins against, in each group.
        totals = self.weights.sum(axis=1, keepdims=True)
        shares = self.weights / totals
        below = np.cumsum(shares, axis=1) - shares / 2
        wins = np.stack([1 - below[1], below[0]])
        area = float(np.clip(shares[1] @ wins[1], 0.0, 1.0))
        if level is None:
            return Estimate(area)
        squares = self.squared_weights / totals**2
        sizes = 1 / squares.sum(axis=1)
        spread = (squares * (wins - area) ** 2).sum(axis=1)
        delong = float(np.sum(spread * sizes / np.maximum(sizes - 1, 1)))
        rows = _size_of_model(area, *sizes)
        if delong > 0 and 0 < area < 1:
            rows = min(rows, area * (1 - area) / delong)
        low, high = wilson(area * rows, rows, level)
        return Estimate(area, min(float(low), area), max(float(high), area))

    def error_bound(self) -> float:
        """Return half of the share of pairs that are in one group."""
        shares = self.weights / self.weights.sum(axis=1, keepdims=True)
        return float(shares[0] @ shares[1]) / 2


def _size_of_model(area: float, zeros: float, ones: float) -> float:
    """Return the n whose A(1 − A)/n is Newcombe's variance for these sizes of the classes."""
    others = max((zeros + ones) / 2 - 1, 0.0)
    return zeros * ones / (1 + others * ((1 - area) / (2 - area) + area / (1 + area)))
