"""Fit any map by any smooth objective: L-BFGS-B on gradients from torch, in float64."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.core.blas_threads import one_torch_thread
from recalib.core.options import options_of
from recalib.fitting.device_rows import DeviceRows, as_tensor
from recalib.fitting.gradient_stage import Stage
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.row_temperatures import RowLikelihood
from recalib.fitting.rows import ArrayRows, Block, Rows
from recalib.maps import Map, Parameters
from recalib.maps.parameterized_temperature import ParameterizedTemperature
from recalib.objectives import Objective
from recalib.ops import NumpyOps
from recalib.ops.torch_ops import TorchOps

#: Replaces −inf, because the gradient of −inf · β is NaN. A logit this far below the row's largest
#: has probability 0 at every temperature in range.
_MASKED_GAPS = 1e6
#: Elements of a row chunk, where rows are independent: as in `recalib.fitting.device_rows`.
_CHUNK = 1_000_000

_WORTH_THREADS = 500_000

#: A search in float32 ends at a step with a relative gain below this, the rounding error of a mean
#: over rows. Ten times this value doubles the remaining steps in float64.
_COARSE_GAIN = 1e-7

#: Returns logits without −inf.
_Finite = Callable[[torch.Tensor], torch.Tensor]


def fit_by_gradient(problem: Problem, start: Parameters) -> Solution:
    """Return the parameters of the map that minimise the objective, from `start`, by stages."""
    (passes, settled), map = _passes_of(problem), problem.map
    solution, specifications = Solution(dict(start)), map.parameters(problem.classes)
    chunk = problem.rows.shape[0]
    if problem.objective.by_row:
        chunk = min(rows_per_chunk(problem.classes), chunk)
    with _threads_for(chunk * problem.classes):
        for names in map.stages(problem.classes):
            converged = solution.converged
            for function, least_gain in passes:
                stage = Stage(specifications, solution.parameters, names)
                reached = stage.minimise(function.at, least_gain, _reporter(problem, solution))
                # The last pass alone decides whether the stage has converged.
                solution = reached.after(replace(solution, converged=converged))
    return replace(solution, settled=settled)


def _passes_of(problem: Problem) -> tuple[_Passes, dict[str, Any]]:
    """Return the loss and the least gain of each search, and the options that it has chosen."""
    map, rows = problem.map, problem.rows
    largest = rows.largest if map.passes_masks else None
    finite = partial(_without_masks, None if largest is None else _MASKED_GAPS * max(1.0, largest))
    if rows.in_memory is not None:
        if isinstance(map, ParameterizedTemperature) and problem.objective.name == "nll":
            return _by_row_temperatures(rows.in_memory, map, finite), {}
        rows = DeviceRows(rows.in_memory, "cpu", keep=finite)
        finite = partial(_without_masks, None)
    loss = _Loss(rows, map, problem.objective, finite)
    loss.objective, settled = _settle(loss, problem.classes)
    return [(loss, map.least_gain)], settled


def _reporter(problem: Problem, before: Solution) -> Callable[[int, float], None]:
    """Return what reports an iteration of a stage after those `before` it."""
    return lambda step, value: problem.report(problem.map.name, before.iterations + step, value)


def _threads_for(numbers: int) -> AbstractContextManager[None]:
    """Return a context of one thread where arrays are small.

    More threads wait for each other longer than they compute; on a busy machine ten times as long.
    """
    return one_torch_thread() if numbers < _WORTH_THREADS else nullcontext()


def _settle(loss: _Loss, classes: int) -> tuple[Objective, dict[str, Any]]:
    """Return the objective after a first step from temperature 1, and the options it has chosen."""
    objective = loss.objective
    if type(objective).settled_by_sums is Objective.settled_by_sums:
        return objective, {}
    start, specifications = loss.map.start(classes, 1.0), loss.map.parameters(classes)
    stage = Stage(specifications, start, specifications)
    first = stage.step(partial(loss.at, stage))
    before, after = (tuple(loss.sums(stage, point)) for point in (stage.start, first))
    settled = objective.settled_by_sums(NumpyOps(), before, after)
    return settled, dict(options_of(settled).items() - options_of(objective).items())


class _Loss:
    """An objective of all rows with the map's penalty, and its gradient.

    An objective that is not a mean over rows is, of rows in files, a function F of sums S over
    rows, such as the mean losses of classes or soft bins: one pass sums S, and a second the
    gradient of Σ v S, with v = ∂F/∂S. Of rows in memory it is differentiated in one pass.
    """

    def __init__(self, rows: Rows, map: Map, objective: Objective, finite: _Finite) -> None:
        self.rows, self.map, self.objective, self._finite = rows, map, objective, finite

    def at(self, stage: Stage, vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the value at the numbers of a stage, and its gradient."""
        weight, objective = self.rows.weight, self.objective
        pass_at = _Pass(self.map, objective, self._finite, stage, vector, weight)
        if objective.by_row:
            flat = self.rows.sum(partial(pass_at.gradient, np.full(1, 1 / weight)))
        elif isinstance(self.rows, DeviceRows):
            flat = self.rows.sum(partial(pass_at.gradient, None), whole=True)
        else:
            sums = torch.tensor(self.rows.sum(pass_at.sums), requires_grad=True)
            error = objective.of_sums(TorchOps(), tuple(sums), weight)
            (slopes,) = torch.autograd.grad(error, sums)
            flat = self.rows.sum(partial(pass_at.gradient, slopes.numpy()))
            flat[0] += float((error - (slopes * sums).sum()).detach())
        return float(flat[0]), flat[1:]

    def sums(self, stage: Stage, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `Objective.sums` of all rows."""
        weight = self.rows.weight
        pass_at = _Pass(self.map, self.objective, self._finite, stage, vector, weight)
        return self.rows.sum(pass_at.sums)


class _TemperatureLoss:
    """The NLL of rows in memory by a map that computes a temperature for each, and its gradient."""

    def __init__(
        self, map: ParameterizedTemperature, largest: Any, likelihood: RowLikelihood, weight: float
    ) -> None:
        self._map, self._largest = map, largest
        self._likelihood, self._weight = likelihood, weight

    def at(self, stage: Stage, vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the value at the numbers of a stage, and its gradient."""
        ops, point = TorchOps(), torch.tensor(vector, requires_grad=True)
        parameters = stage.complete(ops, point)
        nll = self._likelihood(self._map.temperatures(ops, self._largest, parameters))
        flat = flat_gradient(nll + self._map.penalty(ops, parameters, self._weight), point)
        return float(flat[0]), flat[1:]


_Passes = list[tuple[_Loss | _TemperatureLoss, float]]


def _by_row_temperatures(
    rows: ArrayRows, map: ParameterizedTemperature, finite: _Finite
) -> _Passes:
    """Return the loss and the minimum gain of each pass.

    With many rows the first pass is in float32, where an evaluation takes a quarter of the time.
    """
    z = finite(as_tensor(rows.logits).double())
    largest = TorchOps().top_k(z, min(map.top, z.shape[1]))
    w = rows.block.counts / rows.block.counts.mean()
    likelihood = RowLikelihood(z.numpy(), rows.labels, w)
    fine = _TemperatureLoss(map, largest, likelihood, rows.weight)
    if z.numel() < _WORTH_THREADS:
        return [(fine, map.least_gain)]
    coarse = _TemperatureLoss(map, largest, likelihood.narrow(), rows.weight)
    return [(coarse, max(_COARSE_GAIN, map.least_gain)), (fine, map.least_gain)]


@dataclass(frozen=True)
class _Pass:
    """Kernels of an objective at the numbers of a stage."""

    map: Map
    objective: Objective
    finite: _Finite
    stage: Stage
    vector: NDArray[np.float64]
    #: Σ w of all rows.
    weight: float

    def sums(self, block: Block) -> NDArray[np.float64]:
        """Return `Objective.sums` of the rows."""
        total: Any = 0.0
        with _threads_of(block), torch.no_grad():
            for part in block.parts(rows_per_chunk(block.logits.shape[1])):
                ops, _, *arrays = self._log_p(part, torch.tensor(self.vector))
                total = total + torch.stack(self.objective.sums(ops, *arrays)).cpu().numpy()
        return cast("NDArray[np.float64]", total)

    def gradient(self, slopes: NDArray[np.float64] | None, block: Block) -> NDArray[np.float64]:
        """Return Σ v S with v = `slopes` and its share of the map's penalty, and their gradient.

        Without slopes it is the objective of the rows, all at once.
        """
        total, point = np.zeros(1 + len(self.vector)), torch.tensor(self.vector, requires_grad=True)
        step = len(block.labels) if slopes is None else rows_per_chunk(block.logits.shape[1])
        with _threads_of(block):
            for part in block.parts(step):
                ops, parameters, log_p, y, w = self._log_p(part, point)
                if slopes is None:
                    value = self.objective.loss(ops, log_p, y, w / w.mean())
                else:
                    sums = torch.stack(self.objective.sums(ops, log_p, y, w))
                    value = (sums * ops.constant(slopes)).sum()
                penalty = self.map.penalty(ops, parameters, self.weight)
                total += flat_gradient(value + penalty * (float(w.sum()) / self.weight), point)
        return total

    def _log_p(self, block: Block, point: torch.Tensor) -> tuple[Any, ...]:
        """Return the backend, parameters, log p, labels and weights."""
        z = self.finite(as_tensor(block.logits).to(torch.float64))
        ops = TorchOps(device=z.device)
        parameters = self.stage.complete(ops, point)
        log_p = self.map.log_probabilities(ops, z, parameters)
        return ops, parameters, log_p, as_tensor(block.labels), ops.constant(block.counts)


def _threads_of(block: Block) -> AbstractContextManager[None]:
    """Return a context of one thread for rows of files: sums depend on the number of threads."""
    return one_torch_thread() if isinstance(block.logits, np.ndarray) else nullcontext()


def flat_gradient(value: torch.Tensor, point: torch.Tensor) -> NDArray[np.float64]:
    """Return a value and its gradient with respect to a point."""
    (gradient,) = torch.autograd.grad(value, point)
    return np.append(value.item(), gradient.numpy())


def rows_per_chunk(classes: int) -> int:
    """Return the rows of a chunk whose operations torch holds in memory."""
    return max(1, _CHUNK // classes)


def _without_masks(gap: float | None, logits: torch.Tensor) -> torch.Tensor:
    """Return logits whose −inf are a gap below the row's largest: too low for any probability."""
    if gap is None:
        return logits
    top = logits.amax(dim=1, keepdim=True)
    return torch.where(torch.isneginf(logits), top - gap, logits)
