"""Maps by gradient over fragments: workers sum values and gradients by torch, here L-BFGS-B steps.

The steps are those of `recalib.fitting.gradient`. An objective that is not a mean over rows is a
function F of sums S over rows, such as the mean losses of classes or soft bins: one pass sums S,
and a second the gradient of Σ v S, with v = ∂F/∂S.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.core.blas_threads import one_torch_thread
from recalib.core.options import options_of
from recalib.files import Input
from recalib.files.fragments import Fragment
from recalib.fitting.gradient import Stage, masked_gap, reporter, rows_per_chunk, without_masks
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.row_chunks import as_tensor
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.ops import NumpyOps
from recalib.ops.torch_ops import TorchOps
from recalib.scale.rows import FragmentRows, RowSurvey, iter_chunks

Numbers = NDArray[np.float64]


def fit_by_gradient(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, start: Parameters
) -> Solution:
    """Return what `recalib.fitting.gradient.fit_by_gradient` does, for all rows."""
    map = problem.map
    gap = masked_gap(survey.largest) if map.passes_masks else None
    sums = _Sums(rows, survey.weight, gap, map, problem.objective)
    solution, settled = Solution(dict(start)), {}
    if type(problem.objective).settled_by_sums is not Objective.settled_by_sums:
        sums.objective = _settle(sums, survey.classes)
        settled = dict(options_of(sums.objective).items() - options_of(problem.objective).items())
    for names in map.stages(survey.classes):
        stage = Stage(map.parameters(survey.classes), solution.parameters, names)
        function = partial(sums.value_and_gradient, stage, solution.parameters)
        report = reporter(problem, solution)
        solution = stage.minimise(function, map.least_gain, report).after(solution)
    return replace(solution, settled=settled)


def _settle(sums: _Sums, classes: int) -> Objective:
    """Return the objective after a first step from temperature 1."""
    start, specifications = sums.map.start(classes, 1.0), sums.map.parameters(classes)
    stage = Stage(specifications, start, specifications)
    first = stage.step(partial(sums.value_and_gradient, stage, start))
    before, after = (tuple(sums.of(stage, start, point)) for point in (stage.start, first))
    return sums.objective.settled_by_sums(NumpyOps(), before, after)


class _Sums:
    """An objective of all rows as a function of the parameters that move.

    Parameters
    ----------
    weight: Σw, the effective number of rows.
    gap: see `masked_gap`; None if the map takes no masked classes.
    """

    def __init__(
        self, rows: FragmentRows, weight: float, gap: float | None, map: Map, objective: Objective
    ) -> None:
        self._rows, self._weight, self._gap = rows, weight, gap
        self.map, self.objective = map, objective

    def value_and_gradient(
        self, stage: Stage, parameters: Parameters, vector: Numbers
    ) -> tuple[float, Numbers]:
        """Return the objective and the map's penalty at `vector`, and their gradient."""
        objective, ops = self.objective, TorchOps()
        if objective.by_row:
            flat = self._pass(stage, parameters, vector, np.full((1,), 1 / self._weight))
            value, gradient = float(flat[0]), flat[1:]
        else:
            sums = torch.tensor(self.of(stage, parameters, vector), requires_grad=True)
            error = objective.of_sums(ops, tuple(sums), self._weight)
            (slopes,) = torch.autograd.grad(error, sums)
            value = float(error.detach())
            gradient = self._pass(stage, parameters, vector, slopes.numpy())[1:]
        point = torch.tensor(vector, requires_grad=True)
        penalty = self.map.penalty(ops, _complete(ops, stage, parameters, point), self._weight)
        if isinstance(penalty, torch.Tensor) and penalty.requires_grad:
            (slope,) = torch.autograd.grad(penalty, point)
            return value + float(penalty.detach()), gradient + slope.numpy()
        return value + float(penalty), gradient

    def of(self, stage: Stage, parameters: Parameters, vector: Numbers) -> Numbers:
        """Return `Objective.sums` of all rows."""
        return self._pass(stage, parameters, vector, None)

    def _pass(
        self, stage: Stage, parameters: Parameters, vector: Numbers, slopes: Numbers | None
    ) -> Numbers:
        work = partial(
            _pass, self._rows.kind, self.map, self.objective, self._gap,
            stage, dict(parameters), vector, slopes,
        )  # fmt: skip
        return self._rows.sum(work)


def _pass(
    kind: Input,
    map: Map,
    objective: Objective,
    gap: float | None,
    stage: Stage,
    parameters: Parameters,
    vector: Numbers,
    slopes: Numbers | None,
    fragment: Fragment,
) -> Numbers:
    """Return the sums of a fragment, or Σ v S with v = `slopes` and its gradient."""
    ops = TorchOps()
    total: Any = 0.0
    # Sums by several threads would depend on their number.
    with one_torch_thread(), fragment.open(kind) as file:
        step = rows_per_chunk(file.classes)
        for logits, labels, w in iter_chunks(file, kind):
            for start in range(0, len(labels), step):
                z = as_tensor(logits[start : start + step]).to(ops.dtype)
                y = as_tensor(labels[start : start + step])
                z = z if gap is None else without_masks(z, gap)
                point = torch.tensor(vector, requires_grad=slopes is not None)
                complete = _complete(ops, stage, parameters, point)
                log_p = map.log_probabilities(ops, z, complete)
                weights = torch.ones(len(y), dtype=ops.dtype)
                if w is not None:
                    weights = as_tensor(w[start : start + step]).to(ops.dtype)
                sums = torch.stack(objective.sums(ops, log_p, y, weights))
                if slopes is None:
                    total = total + sums.numpy()
                    continue
                value = (sums * torch.tensor(slopes)).sum()
                (gradient,) = torch.autograd.grad(value, point)
                total = total + np.append(value.item(), gradient.numpy())
    return cast(Numbers, total)


def _complete(
    ops: TorchOps, stage: Stage, parameters: Parameters, point: torch.Tensor
) -> Mapping[str, torch.Tensor]:
    """Return the parameters of the map, in which those of the stage move."""
    constants = {name: ops.constant(value) for name, value in parameters.items()}
    return {**constants, **stage.natural(point)}
