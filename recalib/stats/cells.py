"""The cells of a fine histogram of confidences, from which streams compute bins of equal counts.

Confidences concentrate near 1, where one cell of equal width would hold nearly all rows. So the
width of a cell is proportional to its distance from the nearer end, 0 or 1: there are 256 cells for
each halving of that distance, down to 2⁻³⁰.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats

_HALVINGS = 29
_CELLS_PER_HALVING = 256
#: Cells on each side of 1/2; the first is [0, 2⁻³⁰].
_SIDE = _HALVINGS * _CELLS_PER_HALVING + 1
#: The bits, as in `cell_indices`, of the largest halving below the second cell, 2⁻³⁰.
_BELOW_FIRST = (1023 - _HALVINGS - 1) * _CELLS_PER_HALVING - 1
#: The number of cells.
CELLS = 2 * _SIDE


def cell_edges() -> NDArray[np.float64]:
    """Return the CELLS + 1 edges from 0 to 1; 1/2 is one.

    A cell below 1/2 includes its lower edge, a cell above 1/2 its upper edge: a cell is a range of
    distances to the nearer end. 1/2 belongs to the upper half.
    """
    steps = 0.5 + np.arange(_CELLS_PER_HALVING) / (2 * _CELLS_PER_HALVING)
    powers = np.ldexp(1.0, np.arange(_HALVINGS) - _HALVINGS)
    half = np.concatenate([[0.0], np.outer(powers, steps).ravel(), [0.5]])
    return np.concatenate([half, 1 - half[-2::-1]])


def cell_indices(values: Floats) -> NDArray[np.intp]:
    """Return the cell of each value in [0, 1]; the result is monotone in the value.

    1 − p is exact in float64 for p ≥ 1/2, so equal confidences share a cell.
    """
    p = values.astype(np.float64, copy=False)
    upper = p >= 0.5
    # The exponent and the first eight bits of the fraction number the cells of all halvings.
    bits = np.where(upper, 1 - p, p).view(np.int64) >> (52 - 8)
    # 1/2 would begin another halving; it belongs to the last cell.
    cells: NDArray[np.intp] = np.clip(bits - _BELOW_FIRST, 0, _SIDE - 1)
    np.subtract(CELLS - 1, cells, out=cells, where=upper)
    return cells
