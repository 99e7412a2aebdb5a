"""Area under the risk-coverage curve, and how much of it a better order of rows would save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions

__all__ = ["ExcessRiskCoverageArea", "RiskCoverageArea"]

Vector = NDArray[np.float64]


class RiskCoverageArea(Metric):
    """Area under the risk-coverage curve, ∫₀¹ risk(c) dc = −E[ln(1 − G) · error]; range [0, 1].

    risk(c) is the share of errors among the surest rows that make up a share c of all, and 1 − G
    the share of rows that are surer. That is the population's form, here of the rows as they are:
    each is spread evenly over its 1/N of coverage, so that copies of all rows change nothing. The
    sum over N coverages that is often reported differs by less than 1/N.

    Where confidences tie, each row counts with the accuracy of all rows of that confidence: the
    expectation over the orders that they could have, so that the order in a file does not matter.
    It is small where accuracy is high, however good the order: see `e_aurc`. The bias is
    of order 1/N. The interval is for infinitely many rows, see `_interval`; it is no calibration
    error, and has no floor.

    Source: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural
    classifiers, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "area under the risk-coverage curve: errors among the surest rows"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        curve = _Curve.of(predictions)
        value = curve.area
        if level is None:
            return Estimate(value)
        return Estimate(value, *_interval(value, curve.influences(), level))


class ExcessRiskCoverageArea(Metric):
    """Excess AURC: `aurc` less that of the best order, r + (1 − r) ln(1 − r); range [0, 1].

    r is the share of errors: the best order has every error among the least sure rows. 0 is such
    an order, and what is known whatever the order when all rows are right or all are wrong. Ties,
    bias and interval as in `aurc`.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019, section 4.
    """

    name: ClassVar[str] = "e_aurc"
    summary: ClassVar[str] = "aurc above that of the best order of the same errors"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        curve = _Curve.of(predictions)
        share = float(np.mean(curve.errors))
        best = share + float(scipy.special.xlog1py(1 - share, -share))
        value = max(curve.area - best, 0.0)
        if level is None:
            return Estimate(value)
        # The best order's area has the slope −ln(1 − r) in r, and no end where all rows are wrong.
        slope = -float(np.log1p(-min(share, 1 - 1 / (len(predictions) + 1))))
        influences = curve.influences() - slope * (curve.errors - share)
        return Estimate(value, *_interval(value, influences, level))


@dataclass(frozen=True, eq=False)
class _Curve:
    """Rows from the surest to the least sure, and how far each counts; arrays of (N,).

    A row's part of coverage is (i − 1)/N to i/N; rows of one confidence share the mean of theirs.
    """

    errors: Vector
    #: −ln u, its mean over the row's part of coverage.
    weights: Vector
    #: 1/u, likewise; of the surest row, which nothing asks for, 0.
    inverses: Vector
    #: Where groups of one confidence start.
    starts: NDArray[np.intp]

    @classmethod
    def of(cls, predictions: Predictions) -> _Curve:
        """Return the curve of predictions."""
        order = np.argsort(-predictions.confidences, kind="stable")
        p, rows = predictions.confidences[order], len(order)
        starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
        u = np.arange(rows + 1) / rows
        inverses = np.zeros(rows)
        inverses[1:] = rows * np.diff(np.log(u[1:]))
        weights = rows * np.diff(u - scipy.special.xlogy(u, u))
        shared = [_shared(one, starts) for one in (weights, inverses)]
        errors = 1.0 - predictions.correct[order].astype(np.float64)
        return cls(errors, shared[0], shared[1], starts)

    @property
    def area(self) -> float:
        """1/N Σ weight · error, which is E[−ln(1 − G)·error]."""
        return float(np.mean(self.weights * self.errors))

    def influences(self) -> Vector:
        """Return by how much each row moves the area: −ln u·e − E[e'/u' of less sure] + r − area.

        The second term is what a row costs those behind it, whose place it takes: a sure row
        makes every later error count less.
        """
        behind = np.cumsum((self.errors * self.inverses)[::-1])[::-1]
        later = np.append(behind[1:], 0.0) / len(self.errors)
        costs = _shared(later, self.starts)
        influences: Vector = self.weights * self.errors - costs + self.errors.mean() - self.area
        return influences


def _shared(values: Vector, starts: NDArray[np.intp]) -> Vector:
    """Return values (N,), each the mean of its group, which go from `starts`."""
    sizes = np.diff(np.append(starts, len(values)))
    means: Vector = np.repeat(np.add.reduceat(values, starts) / sizes, sizes)
    return means


def _interval(value: float, influences: Vector, level: float) -> tuple[float, float]:
    """Return an interval for an area, from the rows' influences (N,), of mean 0.

    Errors are rare and count differently: a weighted sum of Poisson counts, whose interval is that
    of a gamma variable of the value's mean and variance, the upper end with one error more, of the
    mean weight 1/N and mean square 2/N² (Fay and Feuer, Statistics in Medicine 16, 1997; Tiwari,
    Clegg and Zou, Statistical Methods in Medical Research 15, 2006). So rows that are all right do
    not prove that none is ever wrong. The variance is that of influences, over N.
    """
    rows = len(influences)
    variance = float(influences @ influences) / rows**2
    tail = (1 - level) / 2
    low = _gamma_quantile(tail, value, variance)
    high = _gamma_quantile(1 - tail, value + 1 / rows, variance + 2 / rows**2)
    return min(low, value), max(min(high, 1.0), value)


def _gamma_quantile(probability: float, mean: float, variance: float) -> float:
    if mean == 0 or variance == 0:
        return mean
    return variance / mean * float(scipy.special.gammaincinv(mean**2 / variance, probability))
