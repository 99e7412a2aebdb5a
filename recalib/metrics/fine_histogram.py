"""A fine histogram of confidences: what bins of equal counts are cut from where rows are too many.

Confidences crowd at 1, so that cells of equal width would hold nearly all rows in one. Cells here
are as wide as the distance to the nearer of 0 and 1 allows: C to each halving of it, down to 2⁻³⁰.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.binning import BinState

__all__ = ["CELLS", "FineHistogram", "cell_edges", "cell_indices"]

_HALVINGS = 29
_EACH = 256
#: Cells on either side of 1/2, the first of which goes from 0 to 2⁻³⁰.
_SIDE = _HALVINGS * _EACH + 1
#: How many cells there are.
CELLS = 2 * _SIDE


def cell_edges() -> NDArray[np.float64]:
    """Return the CELLS + 1 edges from 0 to 1; 1/2 is one.

    Cells below 1/2 hold their lower edge, those above their upper one: a cell is a set of
    distances to the nearer end, and 1/2 itself belongs to the upper half.
    """
    steps = 0.5 + np.arange(_EACH) / (2 * _EACH)
    powers = np.ldexp(1.0, np.arange(_HALVINGS) - _HALVINGS)
    half = np.concatenate([[0.0], np.outer(powers, steps).ravel(), [0.5]])
    return np.concatenate([half, 1 - half[-2::-1]])


def cell_indices(values: Floats) -> NDArray[np.intp]:
    """Return the cell of each value in [0, 1]; larger values are in no lower cells.

    1 − p is exact in float64 for p ≥ 1/2, so that equal confidences share a cell and different
    ones part only by cells' widths.
    """
    p = values.astype(np.float64, copy=False)
    upper = p >= 0.5
    fraction, exponent = np.frexp(np.where(upper, 1 - p, p))
    # 1/2 = 0.5·2⁰ would begin a further halving; it is in the last cell, which it closes.
    whole = (exponent + _HALVINGS) * _EACH + ((fraction - 0.5) * 2 * _EACH).astype(np.intp) + 1
    cells: NDArray[np.intp] = np.clip(whole, 0, _SIDE - 1)
    cells[fraction == 0] = 0
    cells[upper] = CELLS - 1 - cells[upper]
    return cells


class FineHistogram(BinState):
    """The sums of `BinState` in cells: 40 bytes each, 0.6 MB however many rows come."""

    def __init__(self) -> None:
        super().__init__(CELLS)

    def _bins_of(self, confidences: Floats) -> NDArray[np.intp]:
        return cell_indices(confidences)
