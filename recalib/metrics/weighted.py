"""Sums of weighted rows, for means and gaps with variances.

A weight is how many rows of the population a row stands for. Values are weighted means. For
intervals the N rows are a sample: the variance of a weighted mean m of scores x is

    Σ w² (x − m)² / (Σw)²,

so the result does not depend on the scale of the weights. The number of rows in formulas that need
one is Kish's effective size, (Σw)²/Σw², N for equal weights. For a fraction m it is the size whose
binomial variance m(1 − m)/n is the variance above, at most N.

Source: Kish, Survey Sampling, 1965, section 11.7; Korn and Graubard, Survey Methodology 24, 1998,
for fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.metrics.base import Estimate, WeightedState
from recalib.metrics.binning import bin_indices
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.fine_histogram import CELLS, cell_indices
from recalib.metrics.mean_metrics import wilson
from recalib.metrics.predictions import Predictions

Vector = NDArray[np.float64]


class WeightedMean(WeightedState):
    """Sums of the scores x of rows: `totals` has N, Σw, Σw², Σwx, Σw²x and Σw²x².

    Parameters
    ----------
    scores: returns the scores of rows, (n,).
    among: returns which rows count, (n,); None: all.
    """

    sums: ClassVar[tuple[str, ...]] = ("totals",)

    def __init__(
        self,
        scores: Callable[[Predictions], NDArray[Any]],
        among: Callable[[Predictions], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._scores, self._among = scores, among
        self.totals = np.zeros(6)

    def add_weighted(self, predictions: Predictions, weights: Vector) -> None:
        scores = self._scores(predictions)
        if self._among is not None:
            at = self._among(predictions)
            scores, weights = scores[at], weights[at]
        self.totals += self.totals_of(scores, weights)

    @staticmethod
    def totals_of(scores: NDArray[Any], weights: Vector) -> Vector:
        """Return the totals of scores and weights (n,)."""
        x = scores.astype(np.float64, copy=False)
        wx = weights * x
        products = weights.sum(), weights @ weights, wx.sum(), weights @ wx, wx @ wx
        return np.array([len(x), *products], np.float64)

    @property
    def rows(self) -> int:
        """N."""
        return int(self.totals[0])


def weighted_mean(totals: Vector, level: float | None) -> Estimate:
    """Return the mean of scores of at least 0 with Student's t interval, from their totals.

    There is no interval if the effective size is below 2, as for a single row.
    """
    _, w, v, wx, _, _ = totals.tolist()
    rows = w**2 / v
    if level is None or rows < 2:
        return Estimate(wx / w)
    variance = _variance(totals) * rows / (rows - 1)
    half = float(scipy.special.stdtrit(rows - 1, (1 + level) / 2) * np.sqrt(variance))
    return Estimate(wx / w, max(wx / w - half, 0.0), wx / w + half)


def weighted_fraction(totals: Vector, level: float | None, *, parts: int = 1) -> Estimate:
    """Return the mean of fractions in [0, 1], such as events 0 and 1, with Wilson's interval.

    Parameters
    ----------
    totals: those of a `WeightedMean`.
    parts: how many events of a row its fraction is of. They may depend on each other.
    """
    n, w, v, wx, _, _ = totals.tolist()
    share = wx / w
    if level is None:
        return Estimate(share)
    rows, variance = w**2 / v, _variance(totals)
    if variance > 0 and 0 < share < 1:
        rows = min(share * (1 - share) / variance, parts * n)
    low, high = wilson(share * rows, rows, level)
    return Estimate(share, min(float(low), share), max(float(high), share))


def _variance(totals: Vector) -> float:
    """Return Σ w²(x − m)²/(Σw)²."""
    _, w, v, wx, vx, vxx = totals.tolist()
    mean = wx / w
    return float(max(vxx - 2 * mean * vx + mean**2 * v, 0.0) / w**2)


class WeightedBins(WeightedState):
    """Sums of weighted rows in M equal-width bins of confidence p, as `BinState` has them.

    `totals` (7, 2, M) has N, Σw, Σwp, Σwp², Σw², Σw²p and Σw²p² of wrong and right rows. They
    determine the variances of gaps as well. The other sums, (M,), are properties.
    """

    sums: ClassVar[tuple[str, ...]] = ("totals", "fractional")

    def __init__(self, bins: int) -> None:
        self.bins = bins
        self.totals = np.zeros((7, 2, bins))
        #: Rows whose weight is not whole.
        self.fractional = 0

    @classmethod
    def of_rows(
        cls, where: NDArray[np.intp], predictions: Predictions, weights: Vector, bins: int
    ) -> Self:
        """Return the sums of rows with weights (n,) in the bins `where` (n,)."""
        state = cls(bins)
        state._add(where, predictions, weights)
        return state

    def add_weighted(self, predictions: Predictions, weights: Vector) -> None:
        self._add(self._bins_of(predictions.confidences), predictions, weights)

    def _add(self, where: NDArray[np.intp], predictions: Predictions, weights: Vector) -> None:
        p = predictions.confidences
        self.totals += _totals(where, p, predictions.correct, weights, self.bins)
        self.fractional += int(np.count_nonzero(weights != np.rint(weights)))

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return bin_indices(confidences, self.bins)

    @property
    def rows(self) -> int:
        """N."""
        return int(self.totals[0].sum())

    @property
    def count(self) -> Vector | NDArray[np.int64]:
        """Σw; integers if all weights are whole, since such weights count repeated rows."""
        weight: Vector = self.totals[1].sum(axis=0)
        if self.fractional or weight.sum() >= 2**53:
            return weight
        return np.rint(weight).astype(np.int64)

    @property
    def correct(self) -> Vector:
        """Σwy."""
        correct: Vector = self.totals[1, 1]
        return correct

    @property
    def confidence(self) -> Vector:
        """Σwp."""
        confidence: Vector = self.totals[2].sum(axis=0)
        return confidence

    @property
    def confidence_correct(self) -> Vector:
        """Σwpy."""
        products: Vector = self.totals[2, 1]
        return products

    @property
    def confidence_squared(self) -> Vector:
        """Σwp²."""
        squared: Vector = self.totals[3].sum(axis=0)
        return squared

    @property
    def filled(self) -> NDArray[np.bool_]:
        """The bins that hold at least one row, as a mask (M,)."""
        filled: NDArray[np.bool_] = self.totals[0].sum(axis=0) > 0
        return filled

    def merged(self, where: NDArray[np.intp], bins: int) -> WeightedBins:
        """Return the sums in wider bins; `where` (M,) has the new bin of each."""
        merged = WeightedBins(bins)
        flat = self.totals.reshape(-1, self.bins)
        rows = [np.bincount(where, values, bins) for values in flat]
        merged.totals += np.stack(rows).reshape(7, 2, bins)
        merged.fractional = self.fractional
        return merged

    def to_gaps(self) -> Gaps:
        """Return the gaps of the non-empty bins with their variances."""
        return _gaps(self.totals, 1)

    def correct_mean(self) -> Vector:
        """Return the totals of a `WeightedMean` of the correctness of all rows."""
        n, w, _, _, v, _, _ = self.totals.sum(axis=2)
        return np.array([n.sum(), w.sum(), v.sum(), w[1], v[1], v[1]])


class WeightedCells(WeightedBins):
    """The sums of `WeightedBins` in the cells of `FineHistogram`: 1.7 MB."""

    def __init__(self) -> None:
        super().__init__(CELLS)

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return cell_indices(confidences)


class WeightedClasses(WeightedState):
    """The same sums for each class k and bin of p = p_k, with y = 1[label = k]: (7, 2, K, M)."""

    sums: ClassVar[tuple[str, ...]] = ("totals",)

    def __init__(self, classes: int, bins: int) -> None:
        self.totals = np.zeros((7, 2, classes, bins))

    def add_weighted(self, predictions: Predictions, weights: Vector) -> None:
        bins = self.totals.shape[-1]
        for k, p in enumerate(predictions.probabilities.T):
            hits = predictions.labels == k
            self.totals[:, :, k] += _totals(bin_indices(p, bins), p, hits, weights, bins)

    def to_gaps(self) -> Gaps:
        """Return the bins of all classes together; each class has weight 1/K."""
        return _gaps(self.totals.reshape(7, 2, -1), self.totals.shape[2])


def _totals(
    where: NDArray[np.intp],
    confidences: Floats,
    correct: NDArray[np.bool_],
    weights: Vector,
    bins: int,
) -> Vector:
    """Return the sums of `WeightedBins` of rows (n,)."""
    p, w = confidences.astype(np.float64, copy=False), weights
    cells, wp, v = where + bins * correct, w * p, w * w
    terms = (None, w, wp, wp * p, v, v * p, wp * wp)
    sums = [np.bincount(cells, values, 2 * bins) for values in terms]
    return np.stack(sums).reshape(7, 2, bins).astype(np.float64, copy=False)


def _gaps(totals: Vector, classes: int) -> Gaps:
    """Return the gaps of non-empty bins from `totals` (7, 2, M), as `Gaps.from_sums` does."""
    # Each of K classes has the weight of all rows.
    total, square = (float(totals[name].sum()) / classes for name in (1, 4))
    wrong, right = totals[:, :, totals[0].sum(axis=0) > 0].swapaxes(0, 1)
    _, w, wp, _, v, vp, vpp = wrong + right
    n, p, y = w**2 / v, wp / w, right[1] / w
    # Σw²r and Σw²r² with the residual r = y − p.
    residual = right[4] - vp
    residual_squared = right[4] - 2 * right[5] + vpp
    squares = residual_squared - 2 * (y - p) * residual + (y - p) ** 2 * v
    variances = np.maximum(squares, 0) / w**2 * n / np.maximum(n - 1, 1)
    noise = np.maximum(vp - vpp, 0) / w**2
    size = total**2 / square
    return Gaps.from_means(n, p, y, variances, noise, size, classes, w / w.sum())
