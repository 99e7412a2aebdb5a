"""Fit maps with scores linear in their parameters by negative log-likelihood.

The objective is convex, and Newton's method reaches its minimum in about ten steps. Slopes are in
units of the best single temperature, the start of the fit, so numbers are near 1 for any scale of
the logits and squares do not overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from recalib.arrays import Floats
from recalib.fitting.linear_nll import Design, DiagonalDesign, FullDesign, LinearNll
from recalib.fitting.newton import TemperatureFit, fit_temperature
from recalib.fitting.newton_cg import Box, Minimum, minimise
from recalib.fitting.problem import RANGE, Problem, Solution

__all__ = ["LINEAR_MAPS", "fit_linear"]

Numbers = NDArray[np.float64]

#: The search ends with a step whose predicted gain is below this, in nats per row.
_TOLERANCE = 1e-10
#: The same in float32, a hundred times the rounding error.
_COARSE = 1e-5
#: Larger inputs take their first steps in float32, which is two to four times as fast.
_LARGE = 200_000
#: Smaller inputs have float64 features even for narrower logits: at most 160 MB.
_WIDE = 20_000_000


@dataclass(frozen=True)
class _Form:
    """The linear score of a map."""

    design: Design
    #: Features (N, K) from logits and the temperature, in the logits' type.
    features: Callable[[Floats, float], Floats]
    slope: str
    bias: str | None
    #: Slopes are positive, and bounded.
    positive: bool = False
    #: The parameter is one over the slope.
    inverse: bool = False
    #: The features are already in units of the temperature.
    dimensionless: bool = False


def fit_linear(problem: Problem) -> Solution:
    """Return the parameters of a linear map that minimise NLL and the map's penalty."""
    form = LINEAR_MAPS[problem.map.name]
    single = fit_temperature(problem.logits, problem.labels, problem.weights)
    start = problem.map.start(problem.classes, single.temperature)
    stages = problem.map.stages(problem.classes)
    if problem.start is not None:
        # Parameters that no stage moves are fitted to these rows, not copied from the start.
        start |= {name: problem.start[name] for names in stages for name in names}
    unit = 1.0 if form.dimensionless else single.temperature
    nll = _objective(problem, form, single.temperature, unit)
    box = _box(form)
    # Passes use their own threads, which sleep while waiting. BLAS threads spin: on a busy machine
    # 5,000 x 100 took 19 s instead of 1.
    with _threads().limit(limits=1, user_api="blas"):
        minimum = _minimise(problem, nll, _theta(form, start, unit), box)
    natural = start | _natural(form, minimum.x, unit)
    solution = Solution(
        natural,
        objective=minimum.value,
        iterations=minimum.steps + single.iterations,
        converged=minimum.converged and single.converged,
        warnings=list(single.warnings),
    )
    solution.bounds.extend(_bounds(form, single, minimum.x, natural, box))
    return solution


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of BLAS threads; creating it takes 30 ms."""
    return ThreadpoolController()


def _minimise(problem: Problem, nll: LinearNll, theta: Numbers, box: Box) -> Minimum:
    """Return the minimum; large inputs are first minimised in float32."""
    steps, name = 0, problem.map.name
    if nll.x.size > _LARGE:
        coarse = minimise(
            lambda point: nll.around(point, np.float32),
            theta,
            box,
            tolerance=_COARSE,
            report=lambda step, value: problem.report(name, step, value),
        )
        theta, steps = coarse.x, coarse.steps
    fine = minimise(
        nll.around,
        theta,
        box,
        tolerance=_TOLERANCE,
        report=lambda step, value: problem.report(name, steps + step, value),
    )
    return Minimum(fine.x, fine.value, steps + fine.steps, fine.converged)


def _objective(problem: Problem, form: _Form, temperature: float, unit: float) -> LinearNll:
    z = problem.logits
    if z.dtype != np.float64 and (
        z.size <= _WIDE or z.dtype != np.float32 or not 1e-9 < temperature < 1e9
    ):
        z = z.astype(np.float64)
    masked = np.isneginf(z)
    if not masked.any():
        x, active_mask = form.features(z, temperature), None
    elif problem.map.passes_masks:
        x, active_mask = np.where(masked, z.dtype.type(0), form.features(z, temperature)), masked
    else:  # as `Map` does
        least = np.where(masked, np.inf, z).min(axis=1, keepdims=True).astype(z.dtype)
        x, active_mask = form.features(np.where(masked, least, z), temperature), masked
    if unit != 1.0:
        x = x / x.dtype.type(unit)
    ridge = _ridge(problem, form, unit)
    return LinearNll(form.design, x, active_mask, problem.labels, problem.weights, *ridge)


def _ridge(problem: Problem, form: _Form, unit: float) -> tuple[Numbers, Numbers, float]:
    """Return the strengths and the centres of the map's ridges, as (K, D), slopes in `unit`, and
    how strongly the diagonal is tied.
    """
    shapes = {
        name: parameter.shape for name, parameter in problem.map.parameters(problem.classes).items()
    }
    strengths = {name: np.zeros(shape) for name, shape in shapes.items()}
    centres = dict(strengths)
    tied = 0.0
    ridges = getattr(problem.map, "ridges", None)
    if ridges is not None:
        for name, ridge in ridges(problem.classes, len(problem.labels)).items():
            strengths[name], centres[name] = ridge.strength, ridge.centre
            tied += ridge.tied
    plain = _Form(form.design, form.features, form.slope, form.bias)
    strengths_and_centres = _theta(plain, strengths, 1 / unit**2), _theta(plain, centres, unit)
    return *strengths_and_centres, tied / unit**2


def _theta(form: _Form, parameters: Mapping[str, Numbers], unit: float) -> Numbers:
    """Return parameters as (K, D), slopes times `unit`."""
    slopes = parameters[form.slope]
    slopes = (1 / slopes if form.inverse else slopes) * unit
    columns = slopes.T if slopes.ndim == 2 else slopes[:, None]
    if form.bias is None:
        return np.array(columns)
    return np.concatenate([columns, parameters[form.bias][:, None]], axis=1)


def _natural(form: _Form, theta: Numbers, unit: float) -> dict[str, Numbers]:
    """Return the parameters that (K, D) stands for."""
    columns = theta if form.bias is None else theta[:, :-1]
    slopes = (columns.T if isinstance(form.design, FullDesign) else columns[:, 0]) / unit
    natural = {form.slope: np.array(1 / slopes if form.inverse else slopes, order="C")}
    if form.bias is not None:
        natural[form.bias] = theta[:, -1].copy()
    return natural


def _box(form: _Form) -> Box:
    if not form.positive:
        return Box()
    free = [] if form.bias is None else [np.inf]
    # Without a warm start, slopes begin at 1 in units of the temperature.
    low = np.array([1 / RANGE, *(-bound for bound in free)])
    return Box(low, np.array([RANGE, *free]))


def _bounds(
    form: _Form, single: TemperatureFit, theta: Numbers, natural: Mapping[str, Numbers], box: Box
) -> list[str]:
    """Return descriptions of the reached bounds, including the single temperature's."""
    reached = []
    if single.bound:
        reached.append(f"temperature at its {single.bound} bound {single.temperature:.6g}")
    if not form.positive:
        return reached
    ends = {"lower": np.broadcast_to(box.low, theta.shape)[:, 0]}
    ends["upper"] = np.broadcast_to(box.high, theta.shape)[:, 0]
    for end, opposite in (("lower", "upper"), ("upper", "lower")):
        there = np.flatnonzero(theta[:, 0] == ends[opposite if form.inverse else end])
        reached.extend(
            f"{form.slope}[{k}] at its {end} bound {natural[form.slope][k]:.6g}" for k in there
        )
    return reached


def _logits(z: Floats, temperature: float) -> Floats:
    return z


def _log_probabilities(z: Floats, temperature: float) -> Floats:
    return _log_softmax(z)


def _softened(z: Floats, temperature: float) -> Floats:
    return _log_softmax(z / z.dtype.type(temperature))


def _log_softmax(z: Floats) -> Floats:
    """Return log softmax(z) in chunks of rows, which avoids four arrays of z's size."""
    x = np.empty_like(z)
    step = max(1, 1_000_000 // z.shape[1])
    for start in range(0, len(z), step):
        shifted = z[start : start + step] - z[start : start + step].max(axis=1, keepdims=True)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        np.subtract(shifted, np.log(total), out=x[start : start + step])
    return x


LINEAR_MAPS: dict[str, _Form] = {
    "class_temperature": _Form(
        DiagonalDesign(intercept=False), _logits, "temperature", None, positive=True, inverse=True
    ),
    "vector": _Form(DiagonalDesign(), _logits, "scale", "bias", positive=True),
    "matrix": _Form(FullDesign(), _logits, "matrix", "bias"),
    "dirichlet": _Form(FullDesign(), _log_probabilities, "matrix", "bias"),
    "structured_vector": _Form(
        DiagonalDesign(), _softened, "scale", "bias", positive=True, dimensionless=True
    ),
    "structured_matrix": _Form(FullDesign(), _softened, "matrix", "bias", dimensionless=True),
}
