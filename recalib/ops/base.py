"""The contract of an array backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: An array of a backend: NumPy array, torch tensor or graph value. The three have no common base
#: class or protocol for their operators.
Array = Any


class Ops(Protocol):
    """The operations of every backend. `x` is (N, K) unless stated otherwise."""

    def constant(self, value: NDArray[np.floating[Any]]) -> Array:
        """Return a parameter as an array of this backend."""
        ...

    def softmax(self, x: Array) -> Array:
        """Return exp(x) / Σ exp(x) over the last axis, computed without overflow.

        −inf gives exactly 0.
        """
        ...

    def log_softmax(self, x: Array) -> Array:
        """Return x − log Σ exp(x) over the last axis; never the logarithm of a softmax."""
        ...

    def log(self, x: Array) -> Array:
        """Return the natural logarithm; 0 becomes −inf without a warning."""
        ...

    def sum(self, x: Array) -> Array:
        """Return the sum over the last axis, which is kept with length 1."""
        ...

    def is_masked(self, x: Array) -> Array:
        """Return where x is −inf, as booleans."""
        ...

    def unmasked(self, x: Array) -> Array:
        """Return 0 where x is −inf and 1 elsewhere."""
        ...

    def where(self, condition: Array, x: Array | float, y: Array | float) -> Array:
        """Return x where `condition` holds, else y."""
        ...

    def min(self, x: Array) -> Array:
        """Return the smallest element of the last axis, which is kept with length 1."""
        ...

    def max(self, x: Array) -> Array:
        """Return the largest element of the last axis, which is kept with length 1."""
        ...

    def top_k(self, x: Array, count: int) -> Array:
        """Return the `count` largest elements of the last axis, largest first."""
        ...

    def matmul(self, x: Array, matrix: Array) -> Array:
        """Return x · matrix, (N, A) times (A, B)."""
        ...

    def scale_rows(self, x: Array, factors: Array) -> Array:
        """Return x · factors, (N, K) times (N, 1) > 0; −inf stays, and gives no gradient."""
        ...

    def relu(self, x: Array) -> Array:
        """Return max(x, 0)."""
        ...

    def tanh(self, x: Array) -> Array:
        """Return the hyperbolic tangent."""
        ...

    def exp(self, x: Array) -> Array:
        """Return the exponential; overflow gives inf without a warning."""
        ...

    def clip_min(self, x: Array, floor: float) -> Array:
        """Return max(x, floor)."""
        ...

    def select(self, x: Array, index: int) -> Array:
        """Return element `index` of a vector, as a scalar array."""
        ...

    def weighted_sum(self, weights: Array, terms: Sequence[Callable[[], Array]]) -> Array:
        """Return Σ weights_i · terms_i, for a parameter of weights that are not all 0.

        A backend with known weights does not compute terms of weight 0.
        """
        ...

    def log_sigmoid(self, x: Array) -> Array:
        """Return −log(1 + exp(−x)), without overflow; −inf stays −inf."""
        ...

    def greater_equal(self, x: Array, y: Array | float) -> Array:
        """Return where x ≥ y, as booleans."""
        ...

    def less_equal(self, x: Array, y: Array | float) -> Array:
        """Return where x ≤ y, as booleans."""
        ...

    def to_float64(self, x: Array) -> Array:
        """Return x in float64."""
        ...

    def cumsum(self, x: Array) -> Array:
        """Return the sums of the elements of the last axis up to each."""
        ...

    def descending(self, x: Array, classes: int) -> Array:
        """Return the indices of each row (N, `classes`), the largest first; ties in their order."""
        ...

    def argmax(self, x: Array) -> Array:
        """Return the index of the largest element of each row, the first of ties, as (N, 1)."""
        ...

    def top_two(self, x: Array) -> tuple[Array, Array, Array]:
        """Return the index of the largest of each row, the largest, and the second, each (N, 1).

        The index is the first of ties.
        """
        ...

    def top_k_indices(self, x: Array, count: int) -> Array:
        """Return the indices of the `count` largest of each row, as (N, `count`), largest first.

        Ties have any order. `take_along` and `put_along` accept the indices.
        """
        ...

    def take_along(self, x: Array, place: Array) -> Array:
        """Return the elements of each row at indices `place` (N, A), as (N, A)."""
        ...

    def put_along(self, x: Array, place: Array, values: Array | float) -> Array:
        """Return x with `values`, (N, A) or a number, at indices `place` (N, A) of each row."""
        ...

    def pairs(self, x: Array, y: Array) -> Array:
        """Return the pairs of both arrays, (N, K, 2)."""
        ...

    def gather(self, table: Array, position: Array) -> Array:
        """Return the elements of a parameter `table` at `position`.

        A table (M,) is used for all of `position`, of any shape; of a table (K, M), row k is used
        for column k of `position` (N, K). Positions are integers in [0, M) stored as floats, exact
        for tables of at most 2²⁴ elements.
        """
        ...


class FittingOps(Ops, Protocol):
    """Further operations of objectives, which are never recorded as a graph."""

    def pick(self, x: Array, labels: Array) -> Array:
        """Return x[i, labels[i]] for every row i, as (N,)."""
        ...

    def is_top_label(self, x: Array, labels: Array) -> Array:
        """Return 1 where the label is the argmax of the row, the first of ties, else 0."""
        ...

    def sum_by_label(self, values: Array, labels: Array, count: int) -> Array:
        """Return the sum of `values` (N,) for each of `count` labels, as (`count`,)."""
        ...
