"""Beta calibration: a small penalised logistic regression for each class.

Legend: K classes, C of them, P weights of a regression, G groups of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import Groups, class_odds
from recalib.fitting.problem import Bound, Problem, Solution
from recalib.fitting.rows import Block
from recalib.fitting.temperature_preprocessing import (
    absence_warnings,
    first_temperature,
    with_nll,
)
from recalib.maps import Parameters
from recalib.stats.groups import group_counts

#: The lower bound of a and b; the penalty bounds them above, and c on both sides.
SMALLEST = 1e-6
#: The search ends with a step whose predicted gain is below this fraction of the sum. Steps with a
#: gain below `_ROUNDING` are taken without a comparison of sums, which rounding decides.
_MIN_GAIN, _ROUNDING = 1e-14, 1e-9
_MIN_STEP, _MAX_STEPS = 1e-10, 200
#: Numbers of a block of rows; a block of log-odds takes about ten arrays of it.
_BLOCK = 500_000
#: Labels of a class that the sample needs to give the start of its three numbers.
_MIN_HITS = 30
#: The parameters of a curve.
_NAMES = ("low", "high", "bias")


@dataclass(frozen=True)
class Prior:
    """A normal prior with the weight of one row, and lower bounds, (P,) each."""

    centre: Numbers
    strength: Numbers
    lowest: Numbers


#: Of (a, b, c): temperature scaling at the centre; variance 1 for a and b, 4 for c.
BETA = Prior(
    np.array([1.0, 1.0, 0.0]),
    np.array([1.0, 1.0, 0.25]),
    np.array([SMALLEST, SMALLEST, -np.inf]),
)
_PLATT = Prior(BETA.centre[1:], BETA.strength[1:], BETA.lowest[1:])


class CurveLosses(NamedTuple):
    """Sums of log-losses of C logistic regressions of P weights, and their derivatives."""

    #: (C,).
    value: Numbers
    #: (C, P).
    slope: Numbers
    #: (C, P, P).
    bend: Numbers


def fit_beta(problem: Problem) -> Solution:
    """Return the curves of a `Beta`, one class after another."""
    single = first_temperature(problem, of_classes=True)
    fit = _all_at_once if problem.rows.in_memory is None else _one_by_one
    curves, converged, absent = fit(problem, single.temperature)
    parameters = dict(zip(_NAMES, curves.T.copy(), strict=True))
    solution = Solution(
        parameters,
        converged=converged,
        bounds=lower_bounds(parameters, ("low", "high")),
        warnings=absence_warnings(absent, problem.classes),
    )
    return with_nll(problem, single.before(solution))


def _one_by_one(problem: Problem, temperature: float) -> tuple[Numbers, bool, int]:
    """Return the curves (K, 3), whether all converged, and the number of absent classes."""
    curves = np.tile(BETA.centre, (problem.classes, 1))
    absent, failed = 0, 0
    for k, groups in enumerate(problem.rows.class_groups(temperature)):
        if groups.hits.any():
            curves[k], converged = beta_curve(groups)
            failed += not converged
        else:
            absent += 1
    return curves, failed == 0, absent


def _all_at_once(problem: Problem, temperature: float) -> tuple[Numbers, bool, int]:
    """Return the same by one pass over rows for each step of Newton's method, from a sample."""
    rows, curves = problem.rows, np.tile(BETA.centre, (problem.classes, 1))
    of_sample = fit_beta(problem.sample).parameters
    enough = group_counts(problem.labels, problem.classes) >= _MIN_HITS
    curves[enough] = np.stack([of_sample[name] for name in _NAMES], axis=1)[enough]
    present = np.flatnonzero(rows.sum(partial(_count_labels, problem.classes)))

    def losses_at(classes: NDArray[np.intp], trial: Numbers) -> CurveLosses:
        sums = rows.sum(partial(_loss_sums, temperature, present[classes], trial))
        return CurveLosses(sums[:, 0], sums[:, 1:4], sums[:, 4:].reshape(-1, 3, 3))

    curves[present], converged = minimise_curves(losses_at, curves[present], BETA)
    return curves, bool(converged.all()), problem.classes - len(present)


def _count_labels(classes: int, block: Block) -> Numbers:
    return group_counts(block.labels, classes).astype(np.float64)


def _loss_sums(
    temperature: float, classes: NDArray[np.intp], curves: Numbers, block: Block
) -> Numbers:
    """Return the losses of curves (C, 3) as (C, 13): the value, the slope and the flat bend."""
    total = np.zeros((len(classes), 13))
    for part in block.parts(max(1, _BLOCK // block.logits.shape[1])):
        inputs = beta_inputs(class_odds(part.logits, temperature, classes))
        hits = (part.labels == classes[:, None]) * part.counts
        losses = curve_losses(inputs, np.ones_like(hits) * part.counts, hits, curves)
        flat = losses.bend.reshape(-1, 9)
        total += np.concatenate([losses.value[:, None], losses.slope, flat], axis=1)
    return total


def lower_bounds(parameters: Parameters, names: Iterable[str]) -> tuple[Bound, ...]:
    """Return the named slopes (K,) that reach their lower bound."""
    counts = {name: int((parameters[name] <= SMALLEST).sum()) for name in names}
    return tuple(
        Bound(f"{name} of {count} classes", "lower", SMALLEST)
        for name, count in counts.items()
        if count
    )


def beta_inputs(odds: Numbers) -> Numbers:
    """Return log p, −log (1 − p) and 1 for log-odds of any shape, (3, ...)."""
    log_p, log_q = scipy.special.log_expit(odds), scipy.special.log_expit(-odds)
    return np.stack([log_p, -log_q, np.ones_like(odds)])


def beta_curve(groups: Groups) -> tuple[Numbers, bool]:
    """Return (a, b, c) of one class, and whether the search converged."""
    return fit_penalised_curve(beta_inputs(groups.odds), groups, BETA)


def platt_curve(groups: Groups) -> tuple[Numbers, bool]:
    """Return the slope and the intercept of one label, and whether the search converged."""
    return fit_penalised_curve(np.stack([groups.odds, np.ones_like(groups.odds)]), groups, _PLATT)


def fit_penalised_curve(inputs: Numbers, groups: Groups, prior: Prior) -> tuple[Numbers, bool]:
    """Return the weights (P,) of one curve, and whether the search converged.

    Parameters
    ----------
    inputs: (P, G).
    """

    def losses_at(classes: NDArray[np.intp], curves: Numbers) -> CurveLosses:
        return curve_losses(inputs[:, None], groups.rows[None], groups.hits[None], curves)

    curves, converged = minimise_curves(losses_at, prior.centre[None], prior)
    return curves[0], bool(converged[0])


def curve_losses(inputs: Numbers, rows: Numbers, hits: Numbers, curves: Numbers) -> CurveLosses:
    """Return the losses of curves (C, P) on groups of rows.

    Parameters
    ----------
    inputs: (P, C, G).
    rows, hits: (C, G), the numbers of rows and of hits of each group.
    """
    score = np.einsum("cp,pcg->cg", curves, inputs)
    value = np.vecdot(rows, np.logaddexp(0, score)) - np.vecdot(hits, score)
    expected = scipy.special.expit(score)
    of_class = inputs.transpose(1, 0, 2)
    slope = np.matmul(of_class, (rows * expected - hits)[:, :, None])[:, :, 0]
    weighted = of_class * (rows * expected * (1 - expected))[:, None]
    return CurveLosses(value, slope, np.matmul(weighted, of_class.transpose(0, 2, 1)))


def minimise_curves(
    losses_at: Callable[[NDArray[np.intp], Numbers], CurveLosses], start: Numbers, prior: Prior
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the weights (C, P) of penalised logistic regressions, and which searches converged.

    Each log-loss plus its penalty is strictly convex, and the bounds are a box. Newton's method on
    the numbers that are not on an active bound, with step halving, finds the optimum.

    Parameters
    ----------
    losses_at: returns the losses of some of the C curves, from their indices and weights.
    start: (C, P).
    """
    count, size = start.shape
    curves, step = np.maximum(start, prior.lowest), np.zeros((count, size))
    value, length, gain = np.full(count, np.inf), np.ones(count), np.full(count, np.inf)
    active, converged = np.ones(count, bool), np.zeros(count, bool)
    for _ in range(_MAX_STEPS):
        at = np.flatnonzero(active)
        trial = np.maximum(curves[at] + length[at, None] * step[at], prior.lowest)
        losses = losses_at(at, trial)
        away = trial - prior.centre
        total = losses.value + 0.5 * (prior.strength * away**2).sum(axis=1)
        better = (total < value[at]) | (gain[at] < _ROUNDING * (1 + abs(value[at])))
        length[at] = np.where(better, 1.0, length[at] / 2)
        active[at] &= length[at] >= _MIN_STEP
        moved = at[better]
        curves[moved], value[moved] = trial[better], total[better]
        slope = losses.slope[better] + prior.strength * away[better]
        bend = losses.bend[better] + np.diag(prior.strength)
        free = (curves[moved] > prior.lowest) | (slope < 0)
        step[moved] = _newton_steps(slope, bend, free)
        gain[moved] = -(slope * step[moved]).sum(axis=1)
        done = moved[gain[moved] < _MIN_GAIN * (1 + abs(value[moved]))]
        curves[done] = np.maximum(curves[done] + step[done], prior.lowest)
        converged[done], active[done] = True, False
        if not active.any():
            break
    return curves, converged


def _newton_steps(slope: Numbers, bend: Numbers, free: NDArray[np.bool_]) -> Numbers:
    """Return Newton steps (C, P) of the free weights; the others stay."""
    free_pairs = free[:, :, None] & free[:, None, :]
    matrix = np.where(free_pairs, bend, np.eye(slope.shape[1]))
    return np.asarray(np.linalg.solve(matrix, np.where(free, -slope, 0.0)[:, :, None])[:, :, 0])
