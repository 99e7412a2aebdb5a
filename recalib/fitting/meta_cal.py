"""Thresholds of Meta-Cal, with bounds that hold for finite samples.

Legend: G groups of rows with equal scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    Groups,
    ScaledRows,
    group_by_odds,
    make_solution,
)
from recalib.maps.meta_accuracy import MetaAccuracy
from recalib.maps.meta_miscoverage import MetaMiscoverage

__all__ = ["REFUSE_ALL", "accuracy_threshold", "fit_meta", "miscoverage_threshold"]

#: A threshold that no row reaches, except those with a single class; its negative refuses none.
REFUSE_ALL = 1e30
#: How many thresholds are tried: more would cost certainty, fewer precision.
_TRIALS = 16

_Vector = NDArray[np.float64]


def fit_meta(problem: Problem) -> Solution:
    """Return the threshold of a `MetaMiscoverage` or `MetaAccuracy`, and the temperatures."""
    map = cast(MetaMiscoverage | MetaAccuracy, problem.map)
    scaled = ScaledRows.from_problem(problem)
    groups = group_by_odds(scaled.odds, scaled.correct, scaled.weights)
    warnings = []
    if isinstance(map, MetaMiscoverage):
        threshold = miscoverage_threshold(groups, map.miscoverage, map.sureness)
        if threshold == -REFUSE_ALL:
            warnings.append(
                f"too few right predictions to refuse any and keep {1 - map.miscoverage:g} of them"
            )
    else:
        threshold = accuracy_threshold(groups, map.accuracy, map.sureness)
        if threshold == REFUSE_ALL:
            warnings.append(
                f"no part of the rows is right with {map.accuracy:g} for sure: all are refused"
            )
    kept = (scaled.odds >= threshold) & (scaled.weights > 0)
    single = scaled.single
    if kept.any() and not kept.all():
        some = problem.where(kept)
        single = fit_temperature(some.logits, some.labels, some.weights)
    parameters = {
        "temperature": np.array(single.temperature),
        "ranking_temperature": np.array(scaled.single.temperature),
        "threshold": np.array(threshold),
    }
    return make_solution(replace(scaled, single=single), parameters, warnings)


def miscoverage_threshold(groups: Groups, miscoverage: float, sureness: float) -> float:
    """Return the highest threshold under which at most `miscoverage` of right rows fall.

    With k − 1 right rows under a group, k of n at most up to its score: the share of right rows to
    come under it is no larger than the k-th of n uniform order statistics, Beta(k, n − k + 1).
    """
    under = np.cumsum(groups.hits) - groups.hits
    total = groups.hits.sum()
    right = groups.hits > 0
    k = under[right] + 1
    passes = scipy.special.betainc(k, np.maximum(total - k, 0) + 1, miscoverage) >= sureness
    if not passes.any():
        return -REFUSE_ALL
    return _below(groups.odds, int(np.flatnonzero(right)[np.flatnonzero(passes)[-1]]))


def accuracy_threshold(groups: Groups, accuracy: float, sureness: float) -> float:
    """Return the lowest of the tried thresholds above which at least `accuracy` is shown."""
    rows = np.cumsum(groups.rows[::-1])[::-1]
    errors = np.cumsum((groups.rows - groups.hits)[::-1])[::-1]
    shares = np.arange(_TRIALS, 0, -1) / _TRIALS
    # From the group at which at most that share of rows is left; the first keeps all.
    for first in np.searchsorted(-rows, -shares * rows[0] * (1 + 1e-9)):
        if first == len(rows):
            continue
        kept, wrong = rows[first], max(float(errors[first]), 0.0)
        # P(at most so many errors | an error rate of 1 − accuracy): the binomial, for any weights.
        luck = scipy.special.betaincc(wrong + 1, kept - wrong, 1 - accuracy) if kept > wrong else 1
        if luck <= (1 - sureness) / _TRIALS:
            return -REFUSE_ALL if first == 0 else _below(groups.odds, int(first))
    return REFUSE_ALL


def _below(odds: _Vector, i: int) -> float:
    """Return a number between group i and the one before: rounding moves no row across it."""
    return float((odds[i] + odds[i - 1]) / 2) if i > 0 else float(odds[0] - 1.0)
