"""Quadratic calibration: a penalised logistic regression of each class, on a rising parabola.

Legend: G groups of rows.
"""

from __future__ import annotations

import numpy as np

from recalib.core.arrays import Numbers
from recalib.fitting.beta import BETA, fit_penalised_curve, lower_bounds
from recalib.fitting.log_odds import Groups
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    absence_warnings,
    first_temperature,
    with_nll,
)

#: The parabola lies between this quantile of the log-odds of hits and its opposite of the others:
#: where both occur, whatever their base rate. Of quantiles of all rows, with or without weights
#: p (1 − p), none had a lower loss on 174 pairs of small data sets and classifiers.
_OVERLAP = 0.05
#: The least width of the range, in nats.
_MIN_WIDTH = 1e-3
#: Of a class without labels: `low`, `width`, `low_slope`, `high_slope` and `value` of the identity.
_IDENTITY = 0.0, 1.0, 1.0, 1.0, 0.0


def fit_quadratic(problem: Problem) -> Solution:
    """Return the curves of a `Quadratic`."""
    single = first_temperature(problem, of_classes=True)
    fits, absent = [], 0
    for groups in problem.rows.class_groups(single.temperature):
        is_present = bool(groups.hits.any())
        fits.append(_fit_class(groups) if is_present else (_IDENTITY, True))
        absent += not is_present
    names = ("low", "width", "low_slope", "high_slope", "value")
    columns = np.array([numbers for numbers, _ in fits]).T.copy()
    parameters = dict(zip(names, columns, strict=True))
    solution = Solution(
        parameters,
        converged=all(converged for _, converged in fits),
        bounds=lower_bounds(parameters, ("low_slope", "high_slope")),
        warnings=absence_warnings(absent, problem.classes),
    )
    return with_nll(problem, single.before(solution))


def _fit_class(groups: Groups) -> tuple[tuple[float, ...], bool]:
    """Return the five numbers of one class, and whether the search converged."""
    low, high = _range(groups)
    inputs = _inputs(groups.odds, low, high)
    (low_slope, high_slope, bias), converged = fit_penalised_curve(inputs, groups, BETA)
    at_low = _inputs(np.array([low]), low, high)[:2, 0]
    value = bias + low_slope * at_low[0] + high_slope * at_low[1]
    return (low, high - low, low_slope, high_slope, value), converged


def _range(groups: Groups) -> tuple[float, float]:
    """Return the range of log-odds where hits and others overlap, or the gap between them."""
    hit = _quantile(groups.odds, groups.hits, _OVERLAP)
    other = _quantile(groups.odds, groups.rows - groups.hits, 1 - _OVERLAP)
    low = min(hit, other)
    return low, max(hit, other, low + _MIN_WIDTH)


def _quantile(odds: Numbers, rows: Numbers, share: float) -> float:
    cumulative = np.cumsum(rows)
    at = np.searchsorted(cumulative, share * cumulative[-1])
    return float(odds[min(int(at), len(odds) - 1)])


def _inputs(odds: Numbers, low: float, high: float) -> Numbers:
    """Return the factors of m_l, m_h and G(0) in G, (3, G)."""
    of_high = _integral(odds, low, high) - _integral(np.zeros(1), low, high)
    return np.stack([odds - of_high, of_high, np.ones_like(odds)])


def _integral(odds: Numbers, low: float, high: float) -> Numbers:
    """Return the integral from l of the share of m_h in the slope."""
    inside = np.clip(odds, low, high) - low
    return np.asarray(inside**2 / (2 * (high - low)) + np.maximum(odds - high, 0.0))
