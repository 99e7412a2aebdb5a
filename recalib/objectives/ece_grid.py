"""Calibration error at temperatures on a grid, a simple and strong baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.field_types import Positive
from recalib.core.options import check_option
from recalib.objectives.hard_binned_ece import HardBinned, hard_binned_error
from recalib.ops.base import Array, FittingOps


@dataclass(frozen=True)
class EceGrid(HardBinned):
    """ECE over equal-width bins, at temperatures on a fixed grid of numbers; range [0, 1].

    The grid is in units of the logits: 0.1, 0.2, ..., 10 by default. If the logits have another
    scale, the fit reports that it reached an end of the grid.

    Options: `bins` M; `lowest`, `highest` and `step` of the grid.

    Use it where the numbers of a paper that searches a grid are reproduced.

    Source: paper 004, section 5 and appendix ("we perform a grid search over T from 0 to 10 with a
    step of 0.1 by the validation set's ECE"); 0 itself is not a temperature.
    """

    name: ClassVar[str] = "ece_grid"
    summary: ClassVar[str] = "calibration error at temperatures from 0.1 to 10 by 0.1; improper"

    lowest: Positive = 0.1
    highest: float = 10.0
    step: Positive = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        above = self.highest >= self.lowest
        check_option("highest", self.highest, above, "highest ≥ lowest")
        few = (self.highest - self.lowest) / self.step <= 10_000
        check_option("step", self.step, few, "at most 10,000 steps from lowest to highest")

    def grid(self) -> NDArray[np.float64]:
        """Return the temperatures, ascending."""
        count = int((self.highest - self.lowest) / self.step + 1e-9) + 1
        # Multiplied, not accumulated: 0.1 added a hundred times is not 10.
        return self.lowest + np.arange(count, dtype=np.float64) * self.step

    def of_sums(self, ops: FittingOps, sums: tuple[Array, ...], rows: float) -> Array:
        return hard_binned_error(sums, rows, 1.0)
