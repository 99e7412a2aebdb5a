"""Newton's method for smooth convex functions of many numbers, some of them in a box.

Each step minimises the quadratic model by preconditioned conjugate gradients, which need products
with the Hessian and never the Hessian itself. Numbers on a bound that the gradient pushes against
are left there (Bertsekas 1982), the others step, are clipped to the box, and go back along that
path until the function has fallen. A step is never measured in units: what counts is by how much
it lowers the model.

Legend: P numbers, in arrays of any one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers

_MAX_STEPS = 200
_MAX_PRODUCTS = 250
#: Armijo's condition: minimum ratio of actual to predicted decrease of a step.
_ARMIJO = 1e-4
_MIN_STEP = 1e-10


class Local(Protocol):
    """A function around one point."""

    value: float
    gradient: Numbers
    #: The rounding error of `value`: less than this is no reason to refuse a step.
    noise: float

    def product(self, direction: Numbers) -> Numbers:
        """Return the Hessian times `direction`."""
        ...

    def preconditioner(self) -> Callable[[Numbers], Numbers]:
        """Return a cheap symmetric positive stand-in for the Hessian's inverse."""
        ...


@dataclass(frozen=True)
class Box:
    """Lower and upper bounds, as arrays that broadcast to the numbers."""

    low: Numbers | float = -np.inf
    high: Numbers | float = np.inf

    def clip(self, x: Numbers) -> Numbers:
        return np.clip(x, self.low, self.high)

    def stuck(self, x: Numbers, gradient: Numbers) -> NDArray[np.bool_]:
        """Return which numbers are on a bound beyond which the function would fall."""
        return ((x <= self.low) & (gradient > 0)) | ((x >= self.high) & (gradient < 0))


@dataclass(frozen=True)
class Minimum:
    """The minimiser, and details of the search."""

    x: Numbers
    value: float
    steps: int
    converged: bool
    #: The decrease that the model promised for the last step.
    promised: float = np.inf


def minimise(
    function: Callable[[Numbers], Any],
    start: Numbers,
    box: Box,
    *,
    tolerance: float,
    promised: float = np.inf,
    small_step: float = 0.0,
    report: Callable[[int, float], None] = lambda step, value: None,
) -> Minimum:
    """Return the minimum of a convex function in a box.

    The search ends with a step of which the quadratic model promises less than `tolerance`, in
    units of the function, or where rounding hides whether a step is one down. The value after this
    last step is the model's: evaluating the function there would not change a digit.

    Parameters
    ----------
    function: returns a `Local` around a point.
    promised: that of an earlier search which led to `start`.
    small_step: after a step that promised less, the preconditioner is used again. With few numbers
        the Hessian is then nearly the same; with 1,000 classes an old preconditioner takes up to
        five times the products of a new one.
    report: called with the number of each step and the value it led to.
    """
    x = box.clip(start)
    here = function(x)
    precondition: Callable[[Numbers], Numbers] | None = None
    for step in range(1, _MAX_STEPS + 1):
        free = ~box.stuck(x, here.gradient)
        accuracy = max(min(0.25, np.sqrt(max(promised, 0.0))), 1e-3)
        if precondition is None:
            precondition = here.preconditioner()
        direction = _conjugate_gradients(here, precondition, free, accuracy, tolerance)
        promised = -float(np.vdot(here.gradient, direction)) / 2
        if 0 < promised <= tolerance:
            report(step, here.value)
            return Minimum(box.clip(x + direction), here.value - promised, step, True, promised)
        if promised > small_step:
            precondition = None
        point = _descend(function, x, here, direction, box) if promised > 0 else None
        if point is None:  # the decrease is below the rounding error
            converged = promised <= max(tolerance, 10 * here.noise)
            return Minimum(x, here.value, step, converged, promised)
        x, here = point
        report(step, here.value)
    return Minimum(x, here.value, _MAX_STEPS, False, promised)


def _conjugate_gradients(
    here: Any,
    precondition: Callable[[Numbers], Numbers],
    free: NDArray[np.bool_],
    accuracy: float,
    tolerance: float,
) -> Numbers:
    """Return a minimiser of the quadratic model over the numbers that are free.

    The residual ends at `accuracy` of where it began, in the preconditioner's norm, or where an
    iteration gains so little that all that are left could not gain `tolerance`.
    """
    residual = np.where(free, -here.gradient, 0.0)
    direction = np.zeros_like(residual)
    preconditioned = np.where(free, precondition(residual), 0.0)
    search = preconditioned
    first = size = float(np.vdot(residual, preconditioned))
    for _ in range(_MAX_PRODUCTS):
        if not size > accuracy**2 * first:
            break
        product = np.where(free, here.product(search), 0.0)
        curvature = float(np.vdot(search, product))
        if not curvature > 0:  # no curvature up to rounding: the model has no minimum along it
            break
        length = size / curvature
        direction = direction + length * search
        if length * size / 2 * _MAX_PRODUCTS < tolerance:
            break
        residual = residual - length * product
        preconditioned = np.where(free, precondition(residual), 0.0)
        before, size = size, float(np.vdot(residual, preconditioned))
        search = preconditioned + (size / before) * search
    return direction


def _descend(
    function: Callable[[Numbers], Any], x: Numbers, here: Any, direction: Numbers, box: Box
) -> tuple[Numbers, Any] | None:
    """Return a lower point along `direction`, clipped to the box, or None."""
    length = 1.0
    while length > _MIN_STEP:
        there = box.clip(x + length * direction)
        slope = float(np.vdot(here.gradient, there - x))
        if slope < 0:
            reached = function(there)
            if reached.value <= here.value + _ARMIJO * slope + here.noise * (length == 1.0):
                return there, reached
        length *= 0.25
    return None
