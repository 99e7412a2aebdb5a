"""Lookup tables: find the cell of a number, and interpolate.

A table is a parameter: (M,) shared by all columns, or (K, M) with a row for each class. Cells are
found by binary search with log₂ M gathers; comparing with every edge would need N x K x M numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.ops.base import Array, Ops


def next_power_of_two(count: int) -> int:
    """Return the smallest power of two ≥ `count`: binary search needs such a number of cells."""
    return 1 << (count - 1).bit_length()


def pad_table(table: NDArray[np.float64], length: int, step: float = 0.0) -> NDArray[np.float64]:
    """Return `table` padded to `length`: each added number is `step` above its predecessor."""
    padding = table[-1] + step * np.arange(1, length - len(table) + 1)
    return np.concatenate([table, padding])


def count_edges(ops: Ops, x: Array, edges: Array, cells: int, *, skip: int = 0) -> Array:
    """Return the index of the cell of each x, as a float: the number of edges ≤ x.

    Parameters
    ----------
    x: finite; (N, 1), or (N, K) for a table with a row for each class.
    edges: ascending; `cells` − 1 of them after the first `skip`.
    cells: a power of two.
    """
    cell = x * 0.0
    half = cells // 2
    while half:
        edge = ops.gather(edges, cell + (half - 1.0 + skip))
        cell = cell + ops.where(ops.greater_equal(x, edge), float(half), 0.0)
        half //= 2
    return cell


class KnotPosition(NamedTuple):
    """The position of x between two knots: the cell, its width and the fraction of it below x."""

    cell: Array
    width: Array
    fraction: Array


def locate(ops: Ops, x: Array, knots: Array, cells: int) -> KnotPosition:
    """Return the position of each x among `cells` + 1 ascending knots, clipped to their range."""
    cell = count_edges(ops, x, knots, cells, skip=1)
    left_knot = ops.gather(knots, cell)
    width = ops.gather(knots, cell + 1.0) - left_knot
    # Clipped to [0, 1] in this order: adding 1 first would be lost for an x of 1e38.
    fraction = 1.0 - ops.relu(1.0 - ops.relu((x - left_knot) / width))
    return KnotPosition(cell, width, fraction)


def interpolate(ops: Ops, x: Array, knots: Array, values: Array, cells: int) -> Array:
    """Return the piecewise linear function with `values` at `knots`, constant outside."""
    position = locate(ops, x, knots, cells)
    start = ops.gather(values, position.cell)
    return start + (ops.gather(values, position.cell + 1.0) - start) * position.fraction
