"""Objectives of all rows at given parameters, by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.fitting.rows import Block, Rows
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.objectives.base import TopLabelObjective
from recalib.ops import NumpyOps

#: Numbers of a block of rows: 8 MB of float64.
_BLOCK = 1_000_000
#: Larger inputs use float32 for confidences: they are accurate to 1e-6, which is enough to compare
#: temperatures.
_MAX_VALUES = 2_000_000


def objective_at(rows: Rows, map: Map, objective: Objective, parameters: Parameters) -> float:
    """Return the objective at given parameters, without the map's penalty."""
    return float(objectives_at(rows, map, objective, [parameters])[0])


def objectives_at(
    rows: Rows, map: Map, objective: Objective, trials: Sequence[Parameters]
) -> Numbers:
    """Return `objective_at` for each of some parameters, in one pass."""
    return _values(rows, objective, partial(_objectives, map, trials))


def binned_errors(rows: Rows, objective: TopLabelObjective, points: Numbers) -> Numbers:
    """Return the objective at log temperatures (n,), in one pass."""
    is_large = rows.shape[0] * rows.shape[1] > _MAX_VALUES
    dtype = np.float32 if is_large else np.float64
    return _values(rows, objective, partial(_binned_errors, np.exp(points), dtype))


def _values(rows: Rows, objective: Objective, kernel: Callable[..., Numbers]) -> Numbers:
    """Return the objective of each trial: of its sums, or for arrays of all rows at once.

    Parameters
    ----------
    kernel: takes the objective, whether it is summed, and a block.
    """
    is_summed = objective.by_row or rows.in_memory is None
    sums = rows.sum(partial(kernel, objective, is_summed), whole=not is_summed)
    if not is_summed:
        return sums[:, 0]
    values = [objective.of_sums(NumpyOps(), tuple(of_trial), rows.weight) for of_trial in sums]
    return np.array(values, np.float64)


def _parts(block: Block, is_summed: bool) -> Iterator[tuple[Floats, Integers, Numbers]]:
    """Yield logits, labels and weights; those of all rows at once have mean 1."""
    step = max(1, _BLOCK // block.logits.shape[1])
    for part in block.parts(step if is_summed else len(block.labels)):
        is_relative = part.weights is not None and not is_summed
        weights = part.weights / part.weights.mean() if is_relative else part.counts
        yield part.logits, part.labels, weights


def _objectives(
    map: Map, trials: Sequence[Parameters], objective: Objective, is_summed: bool, block: Block
) -> Numbers:
    ops, total = NumpyOps(), np.zeros(1)
    loss_of = objective.sums if is_summed else objective.loss
    for logits, labels, weights in _parts(block, is_summed):
        z = logits.astype(np.float64, copy=False)
        of_trials = [
            np.atleast_1d(loss_of(ops, map.log_probabilities(ops, z, trial), labels, weights))
            for trial in trials
        ]
        total = total + np.stack(of_trials)
    return total


def _binned_errors(
    temperatures: Numbers, dtype: Any, objective: TopLabelObjective, is_summed: bool, block: Block
) -> Numbers:
    ops, total = NumpyOps(), np.zeros(1)
    loss_of = objective.sums_of_confidences if is_summed else objective.loss_of_confidences
    for logits, labels, weights in _parts(block, is_summed):
        correct = ops.is_top_label(logits, labels)
        top = logits.max(axis=1, keepdims=True).astype(np.float64)
        gaps = np.subtract(logits, top, dtype=np.float64).astype(dtype, copy=False)
        powers = np.empty_like(gaps)
        of_points = []
        for temperature in temperatures.tolist():
            np.exp(np.multiply(gaps, 1 / temperature, out=powers), out=powers)
            confidences = 1 / powers.sum(axis=1, dtype=np.float64)
            of_points.append(np.atleast_1d(loss_of(ops, confidences, correct, weights)))
        total = total + np.stack(of_points)
    return total
