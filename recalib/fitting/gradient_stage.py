"""Parameters on the scale on which a gradient moves them, and the search by L-BFGS-B.

Each parameter is transformed by its link function, so that it is valid at every step: a positive
parameter by its logarithm, simplex weights by numbers in [0, 1] divided by their sum. scipy's
L-BFGS-B keeps the bounds and stops on the projected gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from recalib.fitting.problem import RANGE, Bound, End, Solution
from recalib.maps import Parameter, Parameters
from recalib.ops.torch_ops import TorchOps

_LOG_RANGE = float(np.log(RANGE))
_SMALLEST_GRADIENT = 1e-8
_MAX_ITERATIONS = 2_000
#: Length of the step after which an objective settles, in transformed parameters: two percent of a
#: temperature, the learning rate of paper 003.
_FIRST_STEP = 0.02

#: Returns a value and its gradient at numbers that move.
_ValueAndGradient = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


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

    def complete(self, ops: TorchOps, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return all parameters of the map, on the device of `ops`."""
        constants = {name: ops.constant(value) for name, value in self._parameters.items()}
        moving = {name: value.to(ops.device) for name, value in self.natural(vector).items()}
        return {**constants, **moving}

    def step(self, function: _ValueAndGradient) -> NDArray[np.float64]:
        """Return the point after one gradient step of at most `_FIRST_STEP` from the start."""
        _, gradient = function(self.start)
        largest = float(np.abs(gradient).max())
        return self.start - gradient * (_FIRST_STEP / largest if largest > 0 else 0.0)

    def minimise(
        self,
        function: Callable[[Stage, NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
        least_gain: float,
        report: Callable[[int, float], None],
    ) -> Solution:
        """Return the parameters with those that minimise the loss.

        Parameters
        ----------
        function: returns the loss at the numbers of the stage, and its gradient.
        report: called with the number of each iteration and its value.
        """
        iterations = 0

        def count(intermediate_result: Any) -> None:
            nonlocal iterations
            iterations += 1
            report(iterations, float(intermediate_result.fun))

        result = scipy.optimize.minimize(
            partial(function, self),
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
