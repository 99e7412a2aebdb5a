"""Thresholds of the Meta-Cal maps, with finite-sample bounds.

Legend: G groups of rows with equal scores.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import scipy

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import Groups
from recalib.fitting.newton import best_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import first_temperature, with_nll
from recalib.maps.meta_cal import MetaAccuracy, MetaMiscoverage

#: The threshold that rejects all rows with two or more classes; its negative accepts all.
REJECT_ALL = 1e30
#: The number of tested thresholds: more lowers the power of each test, fewer the resolution.
_TRIALS = 16


def fit_meta(problem: Problem) -> Solution:
    """Return the threshold of a `MetaMiscoverage` or `MetaAccuracy`, and the temperatures."""
    map = cast(MetaMiscoverage | MetaAccuracy, problem.map)
    ranking = first_temperature(problem)
    groups = problem.rows.groups(ranking.temperature)
    between, warnings = meta_threshold(groups, map)
    threshold = groups.start_of_cell(between)
    accepted = problem.rows.accepted(ranking.temperature, threshold)
    is_part = 0 < accepted.shape[0] < problem.rows.shape[0]
    single = best_temperature(accepted) if is_part else ranking
    parameters = {
        "ranking_temperature": np.array(ranking.temperature),
        "threshold": np.array(threshold),
    }
    return with_nll(problem, single.before(Solution(parameters, warnings=warnings)))


def meta_threshold(
    groups: Groups, map: MetaMiscoverage | MetaAccuracy
) -> tuple[float, tuple[str, ...]]:
    """Return the threshold on the log-odds of predictions, and warnings."""
    if isinstance(map, MetaMiscoverage):
        threshold = miscoverage_threshold(groups, map.miscoverage, map.sureness)
        if threshold == -REJECT_ALL:
            kept = f"{1 - map.miscoverage:g}"
            return threshold, (f"too few right predictions to refuse any and keep {kept} of them",)
    else:
        threshold = accuracy_threshold(groups, map.accuracy, map.sureness)
        if threshold == REJECT_ALL:
            text = f"no part of the rows is right with {map.accuracy:g} for sure: all are refused"
            return threshold, (text,)
    return threshold, ()


def miscoverage_threshold(groups: Groups, miscoverage: float, sureness: float) -> float:
    """Return the highest threshold that rejects at most `miscoverage` of right rows.

    With k − 1 of n right rows below a group, the fraction of new right rows below it is at most the
    k-th of n uniform order statistics, Beta(k, n − k + 1).
    """
    under = np.cumsum(groups.hits) - groups.hits
    total = groups.hits.sum()
    right = groups.hits > 0
    k = under[right] + 1
    passes = scipy.special.betainc(k, np.maximum(total - k, 0) + 1, miscoverage) >= sureness
    if not passes.any():
        return -REJECT_ALL
    return _below(groups.odds, int(np.flatnonzero(right)[np.flatnonzero(passes)[-1]]))


def accuracy_threshold(groups: Groups, accuracy: float, sureness: float) -> float:
    """Return the lowest tested threshold above which the accuracy is at least `accuracy`."""
    rows = np.cumsum(groups.rows[::-1])[::-1]
    errors = np.cumsum((groups.rows - groups.hits)[::-1])[::-1]
    shares = np.arange(_TRIALS, 0, -1) / _TRIALS
    # The first group of the rows that each threshold accepts; the first threshold accepts all.
    for first in np.searchsorted(-rows, -shares * rows[0] * (1 + 1e-9)):
        if first == len(rows):
            continue
        accepted, wrong = rows[first], max(float(errors[first]), 0.0)
        # P(at most this number of errors | an error rate of 1 − accuracy): the binomial, for any
        # weights.
        luck = (
            scipy.special.betaincc(wrong + 1, accepted - wrong, 1 - accuracy)
            if accepted > wrong
            else 1
        )
        if luck <= (1 - sureness) / _TRIALS:
            return -REJECT_ALL if first == 0 else _below(groups.odds, int(first))
    return REJECT_ALL


def _below(odds: Numbers, i: int) -> float:
    """Return a number between groups i − 1 and i, so that rounding moves no row across it."""
    return float((odds[i] + odds[i - 1]) / 2) if i > 0 else float(odds[0] - 1.0)
