"""The input and the result of a solver.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.maps import Map, Parameters
from recalib.objectives import Objective

#: A positive parameter stays within this factor of its start, the best single temperature or its
#: inverse. All solvers use this range, so they report the same bounds.
RANGE = 1_000.0

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

    @property
    def classes(self) -> int:
        """K."""
        return int(self.logits.shape[1])

    @property
    def effective_rows(self) -> float:
        """The number of rows that penalties and smoothing see, see `check_weights`."""
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

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
        return replace(self, logits=self.logits[rows], labels=self.labels[rows], weights=weights)


@dataclass
class Solution:
    """The fitted parameters and the result of the search."""

    parameters: dict[str, NDArray[np.float64]]
    #: The objective at the parameters.
    objective: float
    iterations: int = 0
    converged: bool = True
    #: Descriptions of the parameters that ended on a bound of their range.
    bounds: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: Options that were set by the fit.
    settled: dict[str, float] = field(default_factory=dict)
    #: (N,): the largest calibrated probability of each row, if the solver has computed it.
    confidences: NDArray[np.float64] | None = None


Solver = Callable[[Problem], Solution]
