"""Fit a map of independent labels: K problems of two classes, each with the log-odds of its column.

Legend: N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Numbers
from recalib.core.options import options_of
from recalib.fitting.beta import beta_curve, platt_curve
from recalib.fitting.isotonic import isotonic_blocks, merge_blocks
from recalib.fitting.log_odds import group_by_odds
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Bound, Problem, Solution, first_numbers
from recalib.fitting.rows import ArrayRows
from recalib.maps import Map, Parameters
from recalib.maps.base import STEP
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.ops import NumpyOps

_Labels = NDArray[np.bool_]

#: With a start, a label with fewer rows of a value keeps its curve there.
_LEAST_EACH = 10
#: The weight of a row of an earlier curve, against which priors of a fit vanish.
_CERTAIN = 1e6


def fit_labels(problem: Problem) -> Solution:
    """Return the curves of K labels by `nll`; the objective has no penalty.

    A label without both values keeps its probability. With a start, a label with fewer than
    `_LEAST_EACH` rows of a value keeps its curve there.
    """
    map, z = problem.map, problem.logits.astype(np.float64, copy=False)
    y = problem.labels.astype(np.bool_, copy=False)
    weights = np.ones(len(y)) if problem.weights is None else problem.weights
    kept = _unchanged(map, z) if problem.start is None else problem.start
    parameters = {name: np.array(values) for name, values in kept.items()}
    rare = _rare_labels(y, 1 if problem.start is None else _LEAST_EACH)
    bounds: list[Bound] = []
    converged = True
    for k in range(problem.classes):
        if k not in rare:
            curve = _CURVES[map.name](map, z[:, k], y[:, k], weights)
            for name, value in curve.parameters.items():
                parameters[name][k] = value
            converged &= curve.converged
            bounds += [
                replace(end, parameter=f"label {k}: {end.parameter}") for end in curve.bounds
            ]
        problem.report(f"label {k}", 0, float(y[:, k].mean()))
    scores = map.transform(NumpyOps(), z, parameters)
    losses = -scipy.special.log_expit(np.where(y, scores, -scores)).mean(axis=1)
    return Solution(
        parameters,
        float(np.average(losses, weights=weights)),
        converged=converged,
        bounds=tuple(bounds),
        warnings=_rarity_warnings(rare, problem),
    )


def earlier_curves(map: Map, previous: Calibrator, rows: ArrayRows) -> Parameters:
    """Return the start of a fit to rows (N, K): the curves of an earlier calibrator of K labels.

    Another map is fitted to the earlier curve of each label that keeps it.
    """
    if map == previous.map:
        return previous.parameters
    z = rows.logits.astype(np.float64, copy=False)
    p = previous.predict_float64(z)
    parameters = _unchanged(map, z)
    y = np.arange(2 * len(z)) < len(z)
    for k in _rare_labels(rows.labels, _LEAST_EACH):
        weights = _CERTAIN * np.concatenate([p[:, k], 1 - p[:, k]])
        curve = _CURVES[map.name](map, np.tile(z[:, k], 2), y, weights)
        for name, value in curve.parameters.items():
            parameters[name][k] = value
    return parameters


def _rare_labels(labels: NDArray[np.generic], least: int) -> list[int]:
    """Return the labels with fewer than `least` rows of a value."""
    present = np.count_nonzero(labels, axis=0)
    return np.flatnonzero(np.minimum(present, len(labels) - present) < least).tolist()


def _rarity_warnings(rare: list[int], problem: Problem) -> tuple[str, ...]:
    if not rare:
        return ()
    consequence = "are the same in all rows and keep their probability"
    if problem.start is not None:
        consequence = f"have fewer than {_LEAST_EACH} rows of a value and keep their earlier curve"
    return (f"{len(rare)} of {problem.classes} labels {consequence}: {first_numbers(rare)}",)


def _unchanged(map: Map, z: Numbers) -> dict[str, Numbers]:
    """Return the parameters with which each label keeps its probability."""
    shapes = map.parameters(z.shape[1])
    if "knots" in shapes:
        length = shapes["knots"].shape[1]
        low, high = z.min(axis=0), z.max(axis=0)
        knots = np.linspace(low, np.maximum(high, low + 2 * STEP * length), length, axis=1)
        return {"knots": knots, "values": knots.copy()}
    return {name: np.full(of.shape, float(name != "bias")) for name, of in shapes.items()}


def _temperature(map: Map, z: Numbers, y: _Labels, weights: Numbers) -> Solution:
    # With the logits 0 and z, the softmax of two classes is σ(z).
    logit_pairs = np.stack([np.zeros_like(z), z], axis=1)
    return fit_temperature(logit_pairs, y.astype(np.int64), weights).solution


def _regression(map: Map, z: Numbers, y: _Labels, weights: Numbers) -> Solution:
    fit = platt_curve if map.name == "platt" else beta_curve
    numbers, converged = fit(group_by_odds(z, y, weights))
    return Solution(dict(zip(map.parameters(1), numbers, strict=True)), converged=converged)


def _isotonic(map: Map, z: Numbers, y: _Labels, weights: Numbers) -> Solution:
    knots: int = options_of(map)["knots"]
    blocks = merge_blocks(isotonic_blocks(group_by_odds(z, y, weights)), knots)
    length = next_power_of_two(knots) + 1
    values = pad_table(scipy.special.logit(blocks.share), length)
    return Solution({"knots": pad_table(blocks.odds, length, 1.0), "values": values})


_CURVES: dict[str, Callable[[Map, Numbers, _Labels, Numbers], Solution]] = {
    "identity": lambda map, z, y, weights: Solution({}),
    "temperature": _temperature,
    "platt": _regression,
    "beta": _regression,
    "isotonic": _isotonic,
}
