"""Fit any map by any smooth objective: L-BFGS-B on gradients from torch, in float64.

Each parameter is transformed by its link function, so that it is valid at every step: a positive
parameter by its logarithm, simplex weights by numbers in [0, 1] divided by their sum. scipy's
L-BFGS-B keeps the bounds and stops on the projected gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.core.blas_threads import one_torch_thread
from recalib.core.options import options_of
from recalib.fitting.problem import RANGE, Bound, End, Problem, Solution
from recalib.fitting.row_chunks import RowChunks, as_tensor
from recalib.fitting.row_temperatures import RowLikelihood
from recalib.maps import Parameter, Parameters
from recalib.maps.parameterized_temperature import ParameterizedTemperature
from recalib.objectives import Objective
from recalib.ops.torch_ops import TorchOps

_LOG_RANGE = float(np.log(RANGE))
_SMALLEST_GRADIENT = 1e-8
_MAX_ITERATIONS = 2_000
#: Replaces −inf, because the gradient of −inf · β is NaN. A logit this far below the row's largest
#: has probability 0 at every temperature in range.
_MASKED_GAPS = 1e6
#: Length of the step after which an objective settles, in transformed parameters: two percent of a
#: temperature, the learning rate of paper 003.
FIRST_STEP = 0.02

#: Elements of a row chunk, where rows are independent. Larger arrays get new memory from the system
#: for every operation, which costs five times as much as the operation.
_CHUNK = 1_000_000

_WORTH_THREADS = 500_000

#: A search in float32 ends at a step with a relative gain below this, the rounding error of a mean
#: over rows. Ten times this value doubles the remaining steps in float64.
_COARSE_GAIN = 1e-7

_Tensors = Mapping[str, torch.Tensor]
#: A term of the loss. The loss is the sum of its terms, which are differentiated separately.
_Term = Callable[[_Tensors], torch.Tensor]
#: Logits (n, K), labels (n,) and weights (n,).
_Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_Chunk = Callable[[slice], _Rows]
_ValueAndGradient = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


def fit_by_gradient(problem: Problem, start: Mapping[str, NDArray[np.float64]]) -> Solution:
    """Return the parameters of the map that minimise the objective, from `start`, by stages."""
    ops = TorchOps(device=problem.device or "cpu")
    map, total_rows = problem.map, len(problem.labels)
    solution = Solution(dict(start))
    specifications = map.parameters(problem.classes)
    objective = problem.objective
    slices, chunk = _chunks_of(problem)

    def complete(moving: _Tensors) -> dict[str, torch.Tensor]:
        constants = {name: ops.constant(value) for name, value in solution.parameters.items()}
        return {**constants, **{name: value.to(ops.device) for name, value in moving.items()}}

    def term_of(rows: slice) -> _Term:
        def term(moving: _Tensors) -> torch.Tensor:
            parameters = complete(moving)
            z, y, w = chunk(rows)
            log_p = map.log_probabilities(ops, z, parameters)
            value = objective.loss(ops, log_p, y, w)
            penalty = map.penalty(ops, parameters, problem.effective_rows)
            return (value + penalty) * (len(y) / total_rows)  # type: ignore[no-any-return]

        return term

    terms = [term_of(rows) for rows in slices]
    if type(objective).settled_by_sums is not Objective.settled_by_sums:
        objective = _settle(problem, terms, *chunk(slices[0]))
    changed = options_of(objective).items() - options_of(problem.objective).items()
    passes = [(terms, map.least_gain)]
    if (
        isinstance(map, ParameterizedTemperature)
        and objective.name == "nll"
        and problem.device is None
    ):
        passes = _by_row_temperatures(problem, map, *chunk(slice(None)), complete)
    with _threads_for((slices[0].stop - slices[0].start) * problem.classes):
        for names in map.stages(problem.classes):
            converged = solution.converged
            for terms, least_gain in passes:
                stage = Stage(specifications, solution.parameters, names)
                function = partial(stage.value_and_gradient, terms)
                reached = stage.minimise(function, least_gain, reporter(problem, solution))
                # The last pass alone decides whether the stage has converged.
                solution = reached.after(replace(solution, converged=converged))
    return replace(solution, settled=dict(changed))


def reporter(problem: Problem, before: Solution) -> Callable[[int, float], None]:
    """Return what reports an iteration of a stage after those `before` it."""
    return lambda step, value: problem.report(problem.map.name, before.iterations + step, value)


def _chunks_of(problem: Problem) -> tuple[list[slice], _Chunk]:
    """Return the rows of each term, and a function of logits, labels and weights of some rows.

    Without a device, all rows are tensors before the fit. On a device, each call copies its rows.
    An objective that is not a mean over rows has one term.
    """
    gap = _least_gap(problem.logits) if problem.map.passes_masks else None
    if problem.device is not None:
        chunks = RowChunks(problem.logits, problem.labels, problem.relative_weights, problem.device)

        def copy(rows: slice) -> _Rows:
            z, y, w = chunks.chunk(rows)
            return (z if gap is None else without_masks(z, gap)), y, w

        return chunks.slices(), copy
    ops = TorchOps()
    z = as_tensor(problem.logits).to(ops.dtype)
    z = z if gap is None else without_masks(z, gap)
    y = as_tensor(problem.labels)
    weights = problem.relative_weights
    w = ops.constant(np.ones(len(y)) if weights is None else weights)
    step = rows_per_chunk(problem.classes) if problem.objective.by_row else len(y)
    slices = [slice(i, min(i + step, len(y))) for i in range(0, len(y), step)]
    return slices, lambda rows: (z[rows], y[rows], w[rows])


def _by_row_temperatures(
    problem: Problem,
    map: ParameterizedTemperature,
    z: torch.Tensor,
    y: torch.Tensor,
    w: torch.Tensor,
    complete: Callable[[_Tensors], dict[str, torch.Tensor]],
) -> list[tuple[list[_Term], float]]:
    """Return the terms and the minimum gain of each pass.

    With many rows the first pass is in float32, where an evaluation takes a quarter of the time.
    """
    ops = TorchOps()
    largest = ops.top_k(z, min(map.top, z.shape[1]))
    likelihood = RowLikelihood(z.numpy(), y.numpy(), w.numpy())

    def term_of(likelihood: RowLikelihood) -> list[_Term]:
        def term(moving: _Tensors) -> torch.Tensor:
            parameters = complete(moving)
            value = likelihood(map.temperatures(ops, largest, parameters))
            return value + map.penalty(ops, parameters, problem.effective_rows)  # type: ignore[no-any-return]

        return [term]

    fine = (term_of(likelihood), map.least_gain)
    if z.numel() < _WORTH_THREADS:
        return [fine]
    return [(term_of(likelihood.narrow()), max(_COARSE_GAIN, map.least_gain)), fine]


def _threads_for(numbers: int) -> AbstractContextManager[None]:
    """Return a context of one thread where arrays are small.

    More threads wait for each other longer than they compute; on a busy machine ten times as long.
    """
    return one_torch_thread() if numbers < _WORTH_THREADS else nullcontext()


def _settle(
    problem: Problem, terms: Sequence[_Term], z: torch.Tensor, y: torch.Tensor, w: torch.Tensor
) -> Objective:
    """Return the objective after a first step from temperature 1."""
    ops, map = TorchOps(), problem.map
    uncalibrated, specifications = map.start(problem.classes, 1.0), map.parameters(problem.classes)
    stage = Stage(specifications, uncalibrated, specifications)
    first = stage.step(partial(stage.value_and_gradient, terms))
    with torch.no_grad():
        before, after = (
            map.log_probabilities(ops, z, stage.natural(torch.as_tensor(point)))
            for point in (stage.start, first)
        )
        return problem.objective.settled(ops, before, after, y, w)


class Stage:
    """Some of the parameters as one vector of transformed values."""

    def __init__(
        self, specifications: Mapping[str, Parameter], parameters: Parameters, names: Iterable[str]
    ) -> None:
        self._parameters = parameters
        self._moves = [_Move(name, specifications[name], parameters[name]) for name in names]
        self._ends = np.cumsum([0, *(move.start.size for move in self._moves)])
        self.start = np.concatenate([move.start for move in self._moves])

    def natural(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parameters that `vector` stands for."""
        return {
            move.name: move.natural(vector[a:b])
            for move, (a, b) in zip(self._moves, pairwise(self._ends), strict=True)
        }

    def value_and_gradient(
        self, terms: Sequence[_Term], vector: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the sum of the terms at `vector` and its gradient."""
        total, slope = 0.0, np.zeros_like(vector)
        for term in terms:
            point = torch.tensor(vector, requires_grad=True)
            value = term(self.natural(point))
            (gradient,) = torch.autograd.grad(value, point)
            total += value.item()
            slope += gradient.numpy()
        return total, slope

    def step(self, function: _ValueAndGradient) -> NDArray[np.float64]:
        """Return the point after one gradient step of at most `FIRST_STEP` from the start."""
        _, gradient = function(self.start)
        largest = float(np.abs(gradient).max())
        return self.start - gradient * (FIRST_STEP / largest if largest > 0 else 0.0)

    def minimise(
        self, function: _ValueAndGradient, least_gain: float, report: Callable[[int, float], None]
    ) -> Solution:
        """Return the parameters with those that minimise the loss.

        Parameters
        ----------
        report: called with the number of each iteration and its value.
        """
        iterations = 0

        def count(intermediate_result: Any) -> None:
            nonlocal iterations
            iterations += 1
            report(iterations, float(intermediate_result.fun))

        result = scipy.optimize.minimize(
            function,
            self.start,
            jac=True,
            method="L-BFGS-B",
            bounds=[bound for move in self._moves for bound in move.bounds],
            callback=count,
            options={
                "maxiter": _MAX_ITERATIONS,
                "ftol": least_gain,
                "gtol": _SMALLEST_GRADIENT,
            },
        )
        with torch.no_grad():
            final = self.natural(torch.tensor(result.x))
        moved = {name: value.numpy().copy() for name, value in final.items()}
        ends = zip(self._moves, pairwise(self._ends), strict=True)
        bounds = (bound for move, (a, b) in ends for bound in move.bounds_reached(result.x[a:b]))
        return Solution(
            {**self._parameters, **moved},
            float(result.fun),
            iterations,
            _is_converged(result),
            tuple(bounds),
        )


def _is_converged(result: Any) -> bool:
    """Return whether L-BFGS-B stopped on the gradient, or on rounding at the minimum."""
    return bool(result.success) or float(np.abs(result.jac).max()) < 1e-5


class _Move:
    """One parameter on the scale on which it moves."""

    def __init__(self, name: str, specification: Parameter, start: NDArray[np.float64]) -> None:
        self.name = name
        self.specification = specification
        self.start = _INTO[specification.link](start.reshape(-1))
        self.bounds = [_BOUNDS[specification.link](value) for value in self.start]

    def natural(self, vector: torch.Tensor) -> torch.Tensor:
        return _FROM[self.specification.link](vector).reshape(self.specification.shape)

    def bounds_reached(self, vector: NDArray[np.float64]) -> Iterator[Bound]:
        if self.specification.link != "log":
            return  # a weight of 0 is an answer, not a limit of the search
        for i, (value, (low, high)) in enumerate(zip(vector, self.bounds, strict=True)):
            if value in (low, high):
                index = f"[{i}]" if self.specification.shape else ""
                end: End = "lower" if value == low else "upper"
                yield Bound(f"{self.name}{index}", end, float(np.exp(value)))


_INTO: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "log": np.log,
    "simplex": lambda weights: weights,
    "real": lambda values: values,
}
_FROM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "log": torch.exp,
    "simplex": lambda weights: weights / weights.sum(),
    "real": lambda values: values,
}
_BOUNDS: dict[str, Callable[[float], tuple[float, float]]] = {
    "log": lambda start: (start - _LOG_RANGE, start + _LOG_RANGE),
    "simplex": lambda start: (0.0, 1.0),
    "real": lambda start: (-np.inf, np.inf),
}


def _least_gap(logits: Floats) -> float | None:
    """Return the gap below a row's largest logit that stands for −inf; None without −inf."""
    if not np.isneginf(logits.min()):
        return None
    step = rows_per_chunk(logits.shape[1])
    blocks = (logits[i : i + step] for i in range(0, len(logits), step))
    largest = max(float(np.abs(block[np.isfinite(block)]).max(initial=0.0)) for block in blocks)
    return masked_gap(largest)


def masked_gap(largest: float) -> float:
    """Return the gap of a masked class, for logits of at most this size."""
    return _MASKED_GAPS * max(1.0, largest)


def rows_per_chunk(classes: int) -> int:
    """Return the rows of a chunk whose operations torch holds in memory."""
    return max(1, _CHUNK // classes)


def without_masks(logits: torch.Tensor, gap: float) -> torch.Tensor:
    """Return logits whose −inf are finite, and too low to have any probability."""
    top = logits.amax(dim=1, keepdim=True)
    return torch.where(torch.isneginf(logits), top - gap, logits)
