"""What a solver is given, and what it returns.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers
from recalib.maps import Map, Parameters
from recalib.objectives import Objective

__all__ = ["RANGE", "Problem", "Progress", "Solution", "Solver"]

#: A positive parameter stays within this factor of where it starts, the best single temperature
#: or its inverse: one number for all solvers, which otherwise would report different bounds.
RANGE = 1_000.0

#: Called with the stage's name, the iteration and the objective's value.
Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Problem:
    """A map to be fitted to checked rows by an objective."""

    map: Map
    objective: Objective
    #: (N, K).
    logits: Floats
    #: (N,).
    labels: Integers
    #: (N,) with mean 1, or none where all rows count the same.
    weights: NDArray[np.float64] | None = None
    #: Parameters to begin from: those of an earlier fit of the same map.
    start: Parameters | None = None
    progress: Progress | None = None

    @property
    def classes(self) -> int:
        """K."""
        return int(self.logits.shape[1])

    def report(self, stage: str, iteration: int, value: float) -> None:
        """Tell whoever waits how far the fit has come."""
        if self.progress is not None:
            self.progress(stage, iteration, value)

    def where(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Problem:
        """Return the same problem on some of the rows."""
        weights = None
        if self.weights is not None:
            weights = self.weights[rows]
            total = weights.sum()
            # Rows that count for nothing, all of them: then they count the same.
            weights = weights * (len(weights) / total) if total > 0 else None
        return replace(self, logits=self.logits[rows], labels=self.labels[rows], weights=weights)


@dataclass
class Solution:
    """The parameters, and how they were found."""

    parameters: dict[str, NDArray[np.float64]]
    #: The objective at the parameters.
    objective: float
    iterations: int = 0
    converged: bool = True
    #: Parameters that ended on a bound of their range, in words.
    bounds: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: Options of the objective that the fit itself has set.
    settled: dict[str, float] = field(default_factory=dict)


Solver = Callable[[Problem], Solution]
