"""The input and the result of a solver.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.fitting.rows import ArrayRows, Rows
from recalib.maps import Map, Parameters
from recalib.objectives import Objective

#: A positive parameter stays within this factor of its start, the best single temperature or its
#: inverse. All solvers use this range, so they report the same bounds.
RANGE = 1_000.0

#: The largest number of reached bounds in a card.
_MAX_BOUNDS = 10

#: Called with the stage's name, the iteration and the objective's value.
Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Problem:
    """A map, an objective and checked rows."""

    map: Map
    objective: Objective
    #: (N, K).
    logits: Floats
    #: (N,).
    labels: Integers
    #: (N,), positive, with the effective number of rows as their sum; None if all are 1.
    weights: NDArray[np.float64] | None = None
    #: Start parameters, from an earlier fit of the same map.
    start: Parameters | None = None
    progress: Progress | None = None
    #: A device of torch that rows pass through in chunks; None for arrays in memory.
    device: str | None = None
    #: All rows if they are elsewhere: the others are then a sample of them.
    source: Rows | None = None
    #: A search of a convex loss may end this much above its minimum; 0 for rounding error.
    tolerance: float = 0.0

    @cached_property
    def rows(self) -> Rows:
        """The rows of the fit."""
        if self.source is not None:
            return self.source
        rows = ArrayRows(self.logits, self.labels, self.weights)
        if self.device is None:
            return rows
        # Imported here because torch takes a second, and arrays in memory do not need it.
        from recalib.fitting.device_rows import DeviceRows

        return DeviceRows(rows, self.device)

    @property
    def sample(self) -> Problem:
        """The problem on the rows in memory."""
        return replace(self, source=None, device=None, progress=None)

    @property
    def classes(self) -> int:
        """K."""
        return int(self.logits.shape[1])

    @property
    def relative_weights(self) -> NDArray[np.float64] | None:
        """(N,), the weights divided by their mean; None if all are 1."""
        return None if self.weights is None else self.weights / self.weights.mean()

    def report(self, stage: str, iteration: int, value: float) -> None:
        """Report progress to the callback."""
        if self.progress is not None:
            self.progress(stage, iteration, value)

    def subset(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Problem:
        """Return the same problem on some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self, logits=self.logits[rows], labels=self.labels[rows], weights=weights, source=None
        )

    def start_from(self, temperature: float) -> Parameters:
        """Return the map's start at a temperature, with those of a warm start that a fit moves."""
        start = self.map.start(self.classes, temperature)
        if self.start is None:
            return start
        # Parameters that no stage moves are fitted to these rows, not copied from the start.
        moved = (name for names in self.map.stages(self.classes) for name in names)
        return {**start, **{name: self.start[name] for name in moved}}


End = Literal["lower", "upper"]


@dataclass(frozen=True)
class Bound:
    """A parameter that ended on a bound of its range."""

    parameter: str
    end: End
    value: float

    def __str__(self) -> str:
        """Return the message of a card."""
        return f"{self.parameter} at its {self.end} bound {self.value:.6g}"


def bound_texts(bounds: Sequence[Bound]) -> tuple[str, ...]:
    """Return the messages of a card: of the first bounds, and the number of the others."""
    texts = tuple(map(str, bounds[:_MAX_BOUNDS]))
    more = len(bounds) - len(texts)
    return (*texts, f"... and {more} more") if more else texts


def first_numbers(indices: Sequence[int] | NDArray[np.intp]) -> str:
    """Return the first five indices for a message."""
    return ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")


@dataclass(frozen=True)
class Solution:
    """The fitted parameters and the result of the search."""

    parameters: Parameters
    #: The objective at the parameters; NaN before it is computed.
    objective: float = math.nan
    iterations: int = 0
    converged: bool = True
    bounds: tuple[Bound, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Options that were set by the fit.
    settled: dict[str, float] = field(default_factory=dict)
    #: (N,): the largest calibrated probability of each row, if the solver has computed it.
    confidences: NDArray[np.float64] | None = None

    def after(self, first: Solution) -> Solution:
        """Return the solution with steps, bounds and warnings of the fit that gave its start."""
        return replace(
            self,
            iterations=first.iterations + self.iterations,
            converged=first.converged and self.converged,
            bounds=(*first.bounds, *self.bounds),
            warnings=(*first.warnings, *self.warnings),
        )


#: Why the search for a temperature ends on a bound.
_REASONS = {
    "lower": "the largest logit is right in nearly all rows: they do not determine a temperature",
    "upper": "equal probabilities fit best: the logits do not predict these labels; check that "
    "labels and rows belong together",
}


@dataclass(frozen=True)
class TemperatureFit:
    """The best single temperature by negative log-likelihood, and the result of the search."""

    temperature: float
    nll: float
    iterations: int = 0
    converged: bool = True
    #: The end of the range that stopped the search.
    end: End | None = None
    #: Whether all logits of each row are equal, so that no temperature has any effect.
    is_constant: bool = False

    @property
    def solution(self) -> Solution:
        """The solution of temperature scaling."""
        warnings = (_REASONS[self.end],) if self.end else ()
        if self.is_constant:
            warnings = ("all logits of each row are equal: no temperature has any effect",)
        return Solution(
            {"temperature": np.array(self.temperature)},
            self.nll,
            self.iterations,
            self.converged,
            (Bound("temperature", self.end, self.temperature),) if self.end else (),
            warnings,
        )

    def before(self, solution: Solution) -> Solution:
        """Return the solution of a map that divides logits by this temperature first."""
        parameters = {**self.solution.parameters, **solution.parameters}
        return replace(solution, parameters=parameters).after(self.solution)


Solver = Callable[[Problem], Solution]
