"""Any map by any objective: L-BFGS-B on gradients from torch, in float64.

Each parameter moves on a scale of its own link, so that it is legal at every step: a positive one
as its logarithm, simplex weights as numbers in [0, 1] divided by their sum. scipy's L-BFGS-B
keeps the bounds and stops on the projected gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers
from recalib.maps import Map, Parameter
from recalib.objectives import Objective
from recalib.ops.torch_ops import TorchOps

__all__ = ["GradientFit", "fit_by_gradient"]

#: Temperatures stay within this factor of where they start, the best single temperature.
_LOG_RANGE = float(np.log(1_000.0))
_SMALLEST_GRADIENT = 1e-8
_MOST_ITERATIONS = 2_000
#: Further below the row's largest logit than any temperature in range can lift it: what −inf
#: becomes here, because the gradient of −inf · β is NaN even where its value is right.
_MASKED_GAPS = 1e6

Progress = Callable[[int, float], None]


@dataclass
class GradientFit:
    """The parameters, and how they were found."""

    parameters: dict[str, NDArray[np.float64]]
    objective: float
    iterations: int = 0
    converged: bool = True
    bounds: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def fit_by_gradient(
    map: Map,
    objective: Objective,
    logits: Floats,
    labels: Integers,
    start: Mapping[str, NDArray[np.float64]],
    progress: Progress | None = None,
) -> GradientFit:
    """Return the parameters of `map` that minimise `objective`, from `start`, stage by stage.

    Parameters
    ----------
    logits: (N, K), checked.
    labels: (N,), checked.
    progress: called with the iteration and the objective's value.
    """
    ops = TorchOps()
    z = ops.constant(_without_masks(logits) if map.passes_masks else logits)
    y = torch.as_tensor(labels)
    fitted = GradientFit(dict(start), float("nan"))
    specifications = map.parameters(logits.shape[1])
    for names in map.stages(logits.shape[1]):

        def loss(moving: Mapping[str, torch.Tensor]) -> torch.Tensor:
            held = {name: ops.constant(value) for name, value in fitted.parameters.items()}
            log_p = map.log_probabilities(ops, z, {**held, **moving})
            return objective.loss(ops, log_p, y)  # type: ignore[no-any-return]

        _fit_stage(fitted, {name: specifications[name] for name in names}, loss, progress)
    return fitted


def _fit_stage(
    fitted: GradientFit,
    specifications: Mapping[str, Parameter],
    loss: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
    progress: Progress | None,
) -> None:
    """Move the parameters in `specifications`, and write what came of it into `fitted`."""
    moves = [_Move(name, one, fitted.parameters[name]) for name, one in specifications.items()]
    ends = np.cumsum([0, *(move.start.size for move in moves)])

    def natural(vector: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = (vector[a:b] for a, b in pairwise(ends))
        return {move.name: move.natural(part) for move, part in zip(moves, parts, strict=True)}

    def value_and_gradient(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.tensor(vector, requires_grad=True)
        value = loss(natural(point))
        (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.numpy()

    def report(intermediate_result: Any) -> None:
        fitted.iterations += 1
        if progress is not None:
            progress(fitted.iterations, float(intermediate_result.fun))

    found = scipy.optimize.minimize(
        value_and_gradient,
        np.concatenate([move.start for move in moves]),
        jac=True,
        method="L-BFGS-B",
        bounds=[bound for move in moves for bound in move.bounds],
        callback=report,
        options={"maxiter": _MOST_ITERATIONS, "ftol": 0.0, "gtol": _SMALLEST_GRADIENT},
    )
    with torch.no_grad():
        final = natural(torch.tensor(found.x))
    fitted.parameters.update({name: value.numpy().copy() for name, value in final.items()})
    fitted.objective = float(found.fun)
    fitted.converged &= _converged(found)
    for move, (a, b) in zip(moves, pairwise(ends), strict=True):
        fitted.bounds.extend(move.bounds_reached(found.x[a:b]))


def _converged(found: Any) -> bool:
    """Whether L-BFGS-B ended on the gradient, or on a step lost in rounding at the bottom."""
    return bool(found.success) or float(np.abs(found.jac).max()) < 1e-5


class _Move:
    """One parameter on the scale on which it moves."""

    def __init__(self, name: str, specification: Parameter, start: NDArray[np.float64]) -> None:
        self.name = name
        self.specification = specification
        self.start = _INTO[specification.link](start.reshape(-1))
        self.bounds = [_BOUNDS[specification.link](value) for value in self.start]

    def natural(self, vector: torch.Tensor) -> torch.Tensor:
        return _FROM[self.specification.link](vector).reshape(self.specification.shape)

    def bounds_reached(self, vector: NDArray[np.float64]) -> list[str]:
        if self.specification.link == "simplex":
            return []  # a weight of 0 is an answer, not a limit of the search
        reached = []
        for i, (value, (low, high)) in enumerate(zip(vector, self.bounds, strict=True)):
            if value in (low, high):
                index = f"[{i}]" if self.specification.shape else ""
                end = "lower" if value == low else "upper"
                reached.append(f"{self.name}{index} at its {end} bound {np.exp(value):.6g}")
        return reached


_INTO: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "log": np.log,
    "simplex": lambda weights: weights,
}
_FROM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "log": torch.exp,
    "simplex": lambda weights: weights / weights.sum(),
}
_BOUNDS: dict[str, Callable[[float], tuple[float, float]]] = {
    "log": lambda start: (start - _LOG_RANGE, start + _LOG_RANGE),
    "simplex": lambda start: (0.0, 1.0),
}


def _without_masks(logits: Floats) -> NDArray[np.float64]:
    """Return float64 logits whose −inf are finite, and too low to have any probability."""
    wide = logits.astype(np.float64, copy=False)
    finite = np.isfinite(wide)
    if finite.all():
        return wide
    top = np.where(finite, wide, -np.inf).max(axis=1, keepdims=True)
    gap = max(1.0, float(np.abs(wide[finite]).max()))
    return np.where(finite, wide, top - _MASKED_GAPS * gap)
