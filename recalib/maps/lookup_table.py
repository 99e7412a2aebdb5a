"""Tables of numbers: which cell a number falls into, and what a table says there.

A table is a parameter: (M,) where all columns share it, (K, M) with a row for each class. Cells
are found by binary search, in log₂ M gathers: comparing with every edge would build N x K x M.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.ops.base import Array, Ops

__all__ = ["Place", "cell_indices", "even", "interpolate", "level", "locate"]


def even(count: int) -> int:
    """Return the smallest power of two that is at least `count`: cells for a search to halve."""
    return 1 << (count - 1).bit_length()


def level(table: NDArray[np.float64], length: int, step: float = 0.0) -> NDArray[np.float64]:
    """Return `table` with its last number repeated, `step` higher each time, to `length`."""
    more = table[-1] + step * np.arange(1, length - len(table) + 1)
    return np.concatenate([table, more])


def cell_indices(ops: Ops, x: Array, edges: Array, cells: int, *, skip: int = 0) -> Array:
    """Return in which of `cells` cells each x lies, as whole floats: how many edges are ≤ x.

    Parameters
    ----------
    x: finite; (N, 1), or (N, K) for a table with a row for each class.
    edges: ascending, `cells` − 1 of them after the first `skip`.
    cells: a power of two.
    """
    found = x * 0.0
    half = cells // 2
    while half:
        edge = ops.gather(edges, found + (half - 1.0 + skip))
        found = found + ops.where(ops.greater_equal(x, edge), float(half), 0.0)
        half //= 2
    return found


class Place:
    """Where x lies between two knots: the cell, its width and the share of it left behind."""

    def __init__(self, cell: Array, width: Array, share: Array) -> None:
        self.cell = cell
        self.width = width
        self.share = share


def locate(ops: Ops, x: Array, knots: Array, cells: int) -> Place:
    """Return the place of each x among `cells` + 1 ascending knots; beyond them, at their ends."""
    cell = cell_indices(ops, x, knots, cells, skip=1)
    left = ops.gather(knots, cell)
    width = ops.gather(knots, cell + 1.0) - left
    # Kept in [0, 1] in this order, since an x of 1e38 would swallow a 1 that is added first.
    share = 1.0 - ops.relu(1.0 - ops.relu((x - left) / width))
    return Place(cell, width, share)


def interpolate(ops: Ops, x: Array, knots: Array, values: Array, cells: int) -> Array:
    """Return the continuous function through `values` at `knots`: linear between, level beyond."""
    place = locate(ops, x, knots, cells)
    start = ops.gather(values, place.cell)
    return start + (ops.gather(values, place.cell + 1.0) - start) * place.share
