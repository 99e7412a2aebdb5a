"""Area under the risk-coverage curve (AURC) and excess AURC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.predictions import Predictions

__all__ = ["ExcessRiskCoverageArea", "RiskCoverageArea"]

Vector = NDArray[np.float64]


class RiskCoverageArea(Metric):
    """Area under the risk-coverage curve, ∫₀¹ risk(c) dc = −E[ln(1 − G) · error]; range [0, 1].

    risk(c) is the error rate of the fraction c of rows with the highest confidence. 1 − G is the
    fraction of rows with a higher confidence. This is the population form, applied to the sample:
    each row covers 1/N of the coverage axis, so duplicating all rows changes nothing. The commonly
    reported sum over N coverages differs by less than 1/N.

    Rows with tied confidences all count with their mean accuracy, the expectation over their
    possible orders, so the order in a file does not matter. AURC is small if accuracy is high,
    for any order: see `e_aurc`. The bias is of order 1/N. The interval is for infinitely many
    rows, see `_interval`. AURC is not a calibration error and has no floor.

    Source: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural
    classifiers, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "area under the risk-coverage curve"
    unit: ClassVar[Unit] = "score"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return self.measure_weighted(predictions, np.ones(len(predictions)), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Vector, level: float | None = None
    ) -> Estimate:
        curve = _Curve.from_predictions(predictions, weights)
        value = curve.area
        if level is None:
            return Estimate(value)
        return Estimate(value, *_interval(value, curve.influences(), curve.shares, level))


class ExcessRiskCoverageArea(Metric):
    """Excess AURC: `aurc` less that of the best order, r + (1 − r) ln(1 − r); range [0, 1].

    r is the error rate. In the best order all errors have the lowest confidences, which gives 0.
    The value is also 0 if all rows are right or all are wrong. Ties, bias and interval as in
    `aurc`.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019, section 4.
    """

    name: ClassVar[str] = "e_aurc"
    summary: ClassVar[str] = "aurc minus that of the best order of the same errors"
    unit: ClassVar[Unit] = "score"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return self.measure_weighted(predictions, np.ones(len(predictions)), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Vector, level: float | None = None
    ) -> Estimate:
        curve = _Curve.from_predictions(predictions, weights)
        share = curve.error_rate
        best = share + float(scipy.special.xlog1py(1 - share, -share))
        value = max(curve.area - best, 0.0)
        if level is None:
            return Estimate(value)
        # The area of the best order has slope −ln(1 − r) in r, which is infinite at r = 1.
        slope = -float(np.log1p(-min(share, 1 - 1 / (len(predictions) + 1))))
        influences = curve.influences() - slope * (curve.errors - share)
        return Estimate(value, *_interval(value, influences, curve.shares, level))


@dataclass(frozen=True, eq=False)
class _Curve:
    """Rows by descending confidence, with their weights in the area; arrays of (N,).

    Row i covers its share of the coverage, 1/N without sample weights. Rows with equal confidence
    share the mean of their weights in the area.
    """

    errors: Vector
    #: Of the sample weights.
    shares: Vector
    #: The mean of −ln u over the row's interval of coverage.
    weights: Vector
    #: The mean of 1/u over the same interval; 0 for the first row, where it is not used.
    inverses: Vector
    #: The first row of each group of equal confidence.
    starts: NDArray[np.intp]

    @classmethod
    def from_predictions(cls, predictions: Predictions, sample_weights: Vector) -> _Curve:
        """Return the curve of predictions with sample weights (N,)."""
        order = np.argsort(-predictions.confidences, kind="stable")
        p, rows = predictions.confidences[order], len(order)
        starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
        sums = np.concatenate([[0.0], np.cumsum(sample_weights[order])])
        u, shares = sums / sums[-1], sample_weights[order] / sums[-1]
        inverses = np.zeros(rows)
        inverses[1:] = np.diff(np.log(u[1:])) / shares[1:]
        weights = np.diff(u - scipy.special.xlogy(u, u)) / shares
        weights, inverses = (_group_means(values, shares, starts) for values in (weights, inverses))
        errors = 1.0 - predictions.correct[order].astype(np.float64)
        return cls(errors, shares, weights, inverses, starts)

    @property
    def error_rate(self) -> float:
        """r."""
        return float(np.average(self.errors, weights=self.shares))

    @property
    def area(self) -> float:
        """Σ share · weight · error, which is E[−ln(1 − G)·error]."""
        return float(np.average(self.weights * self.errors, weights=self.shares))

    def influences(self) -> Vector:
        """Return each row's influence on the area: −ln u·e − E[e'/u' of later rows] + r − area.

        The second term is the effect on rows of lower confidence: a row of high confidence moves
        them to a higher coverage, where an error counts less.
        """
        suffix_sums = np.cumsum((self.shares * self.errors * self.inverses)[::-1])[::-1]
        later = np.append(suffix_sums[1:], 0.0)
        costs = _group_means(later, self.shares, self.starts)
        influences: Vector = self.weights * self.errors - costs + self.error_rate - self.area
        return influences


def _group_means(values: Vector, shares: Vector, starts: NDArray[np.intp]) -> Vector:
    """Return for each of values (N,) the mean of its group; groups begin at `starts`."""
    sizes = np.diff(np.append(starts, len(values)))
    sums, totals = np.add.reduceat(values * shares, starts), np.add.reduceat(shares, starts)
    means: Vector = np.repeat(sums / totals, sizes)
    return means


def _interval(
    value: float, influences: Vector, shares: Vector, level: float
) -> tuple[float, float]:
    """Return an interval for an area from influences (N,) of mean 0 and shares of the weight.

    The area is a weighted sum of rare errors, so it is treated as a weighted sum of Poisson counts.
    Its interval is that of a gamma variable with the value's mean and variance; the upper end adds
    one error of mean weight 1/N and mean square 2/N² (Fay and Feuer, Statistics in Medicine 16,
    1997; Tiwari, Clegg and Zou, Statistical Methods in Medical Research 15, 2006). So the upper end
    stays above 0 if all rows are right. The variance is Σ (share · influence)²; N is the effective
    size, 1/Σ share².
    """
    rows = 1 / float(shares @ shares)
    variance = float(np.sum((shares * influences) ** 2))
    tail = (1 - level) / 2
    low = _gamma_quantile(tail, value, variance)
    high = _gamma_quantile(1 - tail, value + 1 / rows, variance + 2 / rows**2)
    return min(low, value), max(min(high, 1.0), value)


def _gamma_quantile(probability: float, mean: float, variance: float) -> float:
    if mean == 0 or variance == 0:
        return mean
    return variance / mean * float(scipy.special.gammaincinv(mean**2 / variance, probability))
