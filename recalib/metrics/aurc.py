"""Area under the risk-coverage curve (AURC) and excess AURC."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate, Unit
from recalib.metrics.binned import GroupMetric
from recalib.metrics.confidence_groups import ConfidenceGroups


class _CurveMetric(GroupMetric):
    """A function of the risk-coverage curve."""

    unit: ClassVar[Unit] = "score"

    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        return self._estimate(_Curve.of(groups), level)

    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        return _Curve.of(groups).error_bound()

    @abstractmethod
    def _estimate(self, curve: _Curve, level: float | None) -> Estimate:
        """Return the metric of a curve."""


class RiskCoverageArea(_CurveMetric):
    """Area under the risk-coverage curve, ∫₀¹ risk(c) dc = −E[ln(1 − G) · error]; range [0, 1].

    risk(c) is the error rate of the fraction c of rows with the highest confidence. 1 − G is the
    fraction of rows with a higher confidence. This is the population form, applied to the sample:
    each row covers 1/N of the coverage axis, so duplicating all rows changes nothing. The commonly
    reported sum over N coverages differs by less than 1/N.

    Rows with tied confidences all count with their mean accuracy, the expectation over their
    possible orders, so the order in a file does not matter. AURC is small if accuracy is high,
    for any order: see `e_aurc`. The bias is of order 1/N. The interval is for infinitely many
    rows, see `_interval`. AURC is not a calibration error and has no floor.

    Streams: rows of a cell of `Cells` count as tied. The difference is at most
    `error_bound`, which puts the errors of each cell first or last.

    Use it where rows of low confidence are handed to someone else.

    Source: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural
    classifiers, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "area under the risk-coverage curve"

    def _estimate(self, curve: _Curve, level: float | None) -> Estimate:
        value = curve.area
        if level is None:
            return Estimate(value)
        return Estimate(value, *_interval(value, curve.influences(), curve.squares, level))


class ExcessRiskCoverageArea(_CurveMetric):
    """Excess AURC: `aurc` less that of the best order, r + (1 − r) ln(1 − r); range [0, 1].

    r is the error rate. In the best order all errors have the lowest confidences, which gives 0.
    The value is also 0 if all rows are right or all are wrong. Ties, streams, bias and interval as
    in `aurc`.

    Use it where the order of rows is compared between classifiers of different accuracy.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019, section 4.
    """

    name: ClassVar[str] = "e_aurc"
    summary: ClassVar[str] = "aurc minus that of the best order of the same errors"

    def _estimate(self, curve: _Curve, level: float | None) -> Estimate:
        share = curve.error_rate
        best = share + float(scipy.special.xlog1py(1 - share, -share))
        value = max(curve.area - best, 0.0)
        if level is None:
            return Estimate(value)
        # The area of the best order has slope −ln(1 − r) in r, which is infinite at r = 1.
        slope = -float(np.log1p(-min(share, 1 - 1 / (curve.rows.sum() + 1))))
        influences = curve.influences() - slope * (np.array([[0], [1]]) - share)
        return Estimate(value, *_interval(value, influences, curve.squares, level))


@dataclass(frozen=True, eq=False)
class _Curve:
    """Groups of rows with equal confidence, by descending confidence.

    A group covers its share of the coverage axis; each of its rows counts with the group's mean
    height in the area. Arrays are (G,), or (2, G) for right and wrong rows.
    """

    #: The number of rows of each group, (G,).
    rows: NDArray[np.int64]
    #: Σw and Σw² of sample weights, (2, G).
    weights: Numbers
    squared_weights: Numbers

    @classmethod
    def of(cls, groups: ConfidenceGroups) -> _Curve:
        """Return the curve of groups, whose rows count as tied."""
        wrong_and_right = groups.moments.by_event(), groups.squared.by_event()
        return cls(groups.rows[::-1], *(sums[::-1, ::-1] for sums in wrong_and_right))

    @property
    def error_rate(self) -> float:
        """The error rate r."""
        return float(self.weights[1].sum() / self.weights.sum())

    @cached_property
    def errors(self) -> Numbers:
        """The share of each group's wrong rows in the weight of all rows, (G,)."""
        return self.weights[1] / self.weights.sum()

    @property
    def squares(self) -> Numbers:
        """Σ share² of right and wrong rows, (2, G)."""
        return self.squared_weights / self.weights.sum() ** 2

    @cached_property
    def ends(self) -> Numbers:
        """The coverage before each group, and 1; (G + 1,)."""
        sums = np.concatenate([[0.0], np.cumsum(self.weights.sum(axis=0))])
        return sums / sums[-1]

    @cached_property
    def heights(self) -> Numbers:
        """The mean of −ln u over the group's interval of coverage, (G,)."""
        u = self.ends
        return np.diff(u - scipy.special.xlogy(u, u)) / np.diff(u)

    @property
    def area(self) -> float:
        """Σ share · height · error, which is E[−ln(1 − G)·error]."""
        return float(self.heights @ self.errors)

    def influences(self) -> Numbers:
        """Return the influence of right and wrong rows on the area, (2, G).

        It is −ln u·e − E[e'/u' of later rows] + r − area. The second term is the effect on rows of
        lower confidence: a row of high confidence moves them to a higher coverage, where an error
        counts less. In a group of n tied rows, a row has (n − 1)/2 of the others after it in the
        mean. 1/u is not used for the first row, where it is infinite.
        """
        sizes = np.diff(self.ends)
        logs = np.log(self.ends[1:])
        inverses = np.diff(logs, prepend=logs[0] - np.log(self.rows[0])) / sizes
        effects = self.errors * inverses
        later = np.cumsum(effects[::-1])[::-1] - effects
        costs = later + effects * (self.rows - 1) / (2 * self.rows)
        others = self.error_rate - self.area - costs
        return np.stack([others, self.heights + others])

    def error_bound(self) -> float:
        """Return a bound on the change of the area if the rows of a group are in another order.

        The area is largest if the errors of each group come first, and smallest if they come last.
        """

        def integral(u: Numbers) -> Numbers:
            u = np.maximum(u, 0.0)
            return u - scipy.special.xlogy(u, u)

        start, end, errors = self.ends[:-1], self.ends[1:], self.errors
        most = float(np.sum(integral(start + errors) - integral(start)))
        least = float(np.sum(integral(end) - integral(end - errors)))
        return max(most - self.area, self.area - least, 0.0)


def _interval(
    value: float, influences: Numbers, squares: Numbers, level: float
) -> tuple[float, float]:
    """Return an interval for an area from influences (2, G) of mean 0 and Σ share² of their rows.

    The area is a weighted sum of rare errors, so it is treated as a weighted sum of Poisson counts.
    Its interval is that of a gamma variable with the value's mean and variance; the upper end adds
    one error of mean weight 1/N and mean square 2/N² (Fay and Feuer, Statistics in Medicine 16,
    1997; Tiwari, Clegg and Zou, Statistical Methods in Medical Research 15, 2006). So the upper end
    stays above 0 if all rows are right. The variance is Σ (share · influence)²; N is the effective
    size, 1/Σ share².
    """
    rows = 1 / float(squares.sum())
    variance = float(np.sum(squares * influences**2))
    tail = (1 - level) / 2
    low = _gamma_quantile(tail, value, variance)
    high = _gamma_quantile(1 - tail, value + 1 / rows, variance + 2 / rows**2)
    return min(low, value), max(min(high, 1.0), value)


def _gamma_quantile(probability: float, mean: float, variance: float) -> float:
    if mean == 0 or variance == 0:
        return mean
    return variance / mean * float(scipy.special.gammaincinv(mean**2 / variance, probability))
