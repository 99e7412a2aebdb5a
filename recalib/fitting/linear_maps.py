"""Fit maps with scores linear in their parameters by negative log-likelihood.

The objective is convex, and Newton's method reaches its minimum in about ten steps. Slopes are in
units of the best single temperature, the start of the fit, so numbers are near 1 for any scale of
the logits and squares do not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from recalib.core.arrays import Floats, Numbers
from recalib.fitting.linear_design import Design, DiagonalDesign, FullDesign
from recalib.fitting.linear_nll import NO_PENALTY, LinearNll, RidgePenalty, SummedAround
from recalib.fitting.newton_cg import Box, Local, Minimum, minimise
from recalib.fitting.problem import RANGE, Bound, End, Problem, Solution
from recalib.fitting.rows import Block, namespace
from recalib.fitting.temperature_preprocessing import best_unit
from recalib.maps import Map

#: The search ends with a step whose predicted gain is below this, in nats per row.
_TOLERANCE = 1e-14
#: The same in float32, a hundred times the rounding error.
_COARSE = 1e-5
#: A preconditioner of arrays takes as long as one or two products: it is kept after a smaller step.
#: That of rows elsewhere comes with each gradient.
_SMALL_STEP = 1e-2
#: Larger inputs take their first steps in float32, which is two to four times as fast.
_LARGE = 200_000
#: Rows for each parameter that a sample needs to give the start of a map with many.
_ROWS_PER_PARAMETER = 10
#: Smaller inputs have float64 features even for narrower logits: at most 160 MB.
_WIDE = 20_000_000


@dataclass(frozen=True)
class LinearForm:
    """The linear score of a map."""

    design: Design
    slope: str
    bias: str | None
    #: Features are log-probabilities, of the logits or, if `dimensionless`, of logits over the
    #: temperature. Otherwise they are the logits.
    normalised: bool = False
    #: Slopes are positive, and bounded.
    positive: bool = False
    #: The parameter is one over the slope.
    inverse: bool = False
    #: The features are already in units of the temperature.
    dimensionless: bool = False

    def features(self, logits: Floats, temperature: float) -> Floats:
        """Return the features (N, K), in the logits' type."""
        if not self.normalised:
            return logits
        return _log_softmax(logits / temperature if self.dimensionless else logits)

    def unit(self, temperature: float) -> float:
        """Return the unit of slopes."""
        return 1.0 if self.dimensionless else temperature

    def rows(self, map: Map, logits: Any, temperature: float) -> tuple[Any, Any]:
        """Return features (N, K), and where a class is masked, None where none is."""
        z, xp = logits, namespace(logits)
        if z.dtype != xp.float64 and (
            math.prod(z.shape) <= _WIDE or z.dtype != xp.float32 or not 1e-9 < temperature < 1e9
        ):
            z = xp.asarray(z, dtype=xp.float64)
        masked = xp.isneginf(z)
        if not masked.any():
            x, active_mask = self.features(z, temperature), None
        elif map.passes_masks:
            x, active_mask = xp.where(masked, 0.0, self.features(z, temperature)), masked
        else:  # as `Map` does
            least = xp.amin(xp.where(masked, np.inf, z), axis=1, keepdims=True)
            x, active_mask = self.features(xp.where(masked, least, z), temperature), masked
        unit = self.unit(temperature)
        return (x if unit == 1.0 else x / unit), active_mask

    def ridge(self, map: Map, classes: int, rows: float, unit: float) -> RidgePenalty:
        """Return the map's penalty for an effective number of rows, slopes in `unit`."""
        shapes = {name: parameter.shape for name, parameter in map.parameters(classes).items()}
        strengths = {name: np.zeros(shape) for name, shape in shapes.items()}
        centres = dict(strengths)
        tied = 0.0
        ridges = getattr(map, "ridges", None)
        if ridges is not None:
            for name, ridge in ridges(classes, rows).items():
                strengths[name], centres[name] = ridge.strength, ridge.centre
                tied += ridge.tied
        strength = self._columns(strengths, strengths[self.slope] / unit**2)
        centre = self._columns(centres, centres[self.slope] * unit)
        return RidgePenalty(strength, centre, tied / unit**2)

    def theta(self, parameters: Mapping[str, Numbers], unit: float) -> Numbers:
        """Return the map's parameters as (K, D), slopes in `unit`."""
        slopes = parameters[self.slope]
        return self._columns(parameters, (1 / slopes if self.inverse else slopes) * unit)

    def _columns(self, parameters: Mapping[str, Numbers], slopes: Numbers) -> Numbers:
        columns = slopes.T if slopes.ndim == 2 else slopes[:, None]
        if self.bias is None:
            return np.array(columns)
        return np.concatenate([columns, parameters[self.bias][:, None]], axis=1)

    def natural(self, theta: Numbers, unit: float) -> dict[str, Numbers]:
        """Return the map's parameters that (K, D) stands for."""
        columns = theta if self.bias is None else theta[:, :-1]
        slopes = (columns.T if isinstance(self.design, FullDesign) else columns[:, 0]) / unit
        natural = {self.slope: np.array(1 / slopes if self.inverse else slopes, order="C")}
        if self.bias is not None:
            natural[self.bias] = theta[:, -1].copy()
        return natural

    @property
    def box(self) -> Box:
        """The range of the parameters."""
        if not self.positive:
            return Box()
        free = [] if self.bias is None else [np.inf]
        # Without a warm start, slopes begin at 1 in units of the temperature.
        low = np.array([1 / RANGE, *(-bound for bound in free)])
        return Box(low, np.array([RANGE, *free]))

    def bounds(self, theta: Numbers, natural: Mapping[str, Numbers]) -> tuple[Bound, ...]:
        """Return the slopes that reached a bound."""
        if not self.positive:
            return ()
        low, high = (np.ravel(end)[0] for end in (self.box.low, self.box.high))
        ends: dict[End, float] = {"lower": low, "upper": high}
        if self.inverse:
            ends = {"lower": high, "upper": low}
        return tuple(
            Bound(f"{self.slope}[{k}]", end, float(natural[self.slope][k]))
            for end, value in ends.items()
            for k in np.flatnonzero(theta[:, 0] == value)
        )


def _log_softmax(z: Floats) -> Floats:
    """Return log softmax(z) in chunks of rows, which avoids four arrays of z's size."""
    xp = namespace(z)
    x: Floats = xp.empty_like(z)
    step = max(1, 1_000_000 // z.shape[1])
    for start in range(0, len(z), step):
        at = slice(start, start + step)
        shifted = z[at] - xp.amax(z[at], axis=1, keepdims=True)
        xp.subtract(shifted, xp.log(xp.exp(shifted).sum(axis=1, keepdims=True)), out=x[at])
    return x


LINEAR_MAPS: dict[str, LinearForm] = {
    "class_temperature": LinearForm(
        DiagonalDesign(intercept=False), "temperature", None, positive=True, inverse=True
    ),
    "vector": LinearForm(DiagonalDesign(), "scale", "bias", positive=True),
    "matrix": LinearForm(FullDesign(), "matrix", "bias"),
    "dirichlet": LinearForm(FullDesign(), "matrix", "bias", normalised=True),
    "structured_vector": LinearForm(
        DiagonalDesign(), "scale", "bias", normalised=True, positive=True, dimensionless=True
    ),
    "structured_matrix": LinearForm(
        FullDesign(), "matrix", "bias", normalised=True, dimensionless=True
    ),
}


def fit_linear(problem: Problem) -> Solution:
    """Return the parameters of a linear map that minimise NLL and the map's penalty."""
    form, rows = LINEAR_MAPS[problem.map.name], problem.rows
    single = best_unit(rows)
    problem, unit = _with_start(problem, single.temperature), form.unit(single.temperature)
    start = problem.start_from(single.temperature)
    theta = form.theta(start, unit)
    ridge = form.ridge(problem.map, problem.classes, rows.weight, unit)
    nll_of = partial(_nll_of, form, problem.map, single.temperature)
    if rows.in_memory is not None:
        block = rows.in_memory.block._replace(weights=problem.relative_weights)
        minimum = _minimise_array(problem, nll_of(block, ridge), theta, form.box)
    else:
        around = partial(SummedAround, rows, nll_of, form.design, ridge)
        minimum = _minimise(problem, around, theta, form.box)
    natural = form.natural(minimum.x, unit)
    return Solution(
        {**start, **natural},
        objective=minimum.value,
        iterations=minimum.steps,
        converged=minimum.converged,
        bounds=form.bounds(minimum.x, natural),
    ).after(single.solution)


def _nll_of(
    form: LinearForm,
    map: Map,
    temperature: float,
    block: Block,
    ridge: RidgePenalty = NO_PENALTY,
) -> LinearNll:
    x, masked = form.rows(map, block.logits, temperature)
    return LinearNll(form.design, x, masked, block.labels, block.weights, ridge)


def _with_start(problem: Problem, temperature: float) -> Problem:
    """Return the problem of rows in files with the start of a sample, which saves passes.

    The sample has enough rows for each parameter, or the problem stays as it is.
    """
    if problem.source is None or problem.start is not None:
        return problem
    start = problem.map.start(problem.classes, temperature)
    moved = [name for names in problem.map.stages(problem.classes) for name in names]
    if len(problem.labels) < _ROWS_PER_PARAMETER * sum(start[name].size for name in moved):
        return problem
    return replace(problem, start=fit_linear(problem.sample).parameters)


def _minimise_array(problem: Problem, nll: LinearNll, theta: Numbers, box: Box) -> Minimum:
    """Return the minimum; large inputs are first minimised in float32."""
    coarse = None
    if nll.x.size > _LARGE:
        coarse = minimise(
            partial(nll.around, dtype="float32"),
            theta,
            box,
            tolerance=_COARSE,
            small_step=_SMALL_STEP,
            report=partial(problem.report, problem.map.name),
        )
    return _minimise(problem, nll.around, theta, box, coarse, _SMALL_STEP)


def _minimise(
    problem: Problem,
    around: Callable[[Numbers], Local],
    theta: Numbers,
    box: Box,
    coarse: Minimum | None = None,
    small_step: float = 0.0,
) -> Minimum:
    """Return the minimum, by a search in float64 after a coarse one."""
    steps = 0 if coarse is None else coarse.steps
    fine = minimise(
        around,
        theta if coarse is None else coarse.x,
        box,
        tolerance=max(_TOLERANCE, problem.tolerance),
        promised=np.inf if coarse is None else coarse.promised,
        small_step=small_step,
        report=lambda step, value: problem.report(problem.map.name, steps + step, value),
    )
    return replace(fine, steps=steps + fine.steps)
