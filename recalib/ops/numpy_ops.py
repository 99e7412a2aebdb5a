"""NumPy backend, the reference; results have the dtype of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.floating[Any]]

#: Arrays up to this size are computed in plain Python, which is faster: 4 us for a row of 10, while
#: five calls of NumPy take 10. Most requests of servers are this small.
_SMALL = 32


class NumpyOps:
    """`Ops` on NumPy arrays; float64 input gives float64 results."""

    def __init__(self, dtype: type[np.floating[Any]] = np.float64) -> None:
        self.dtype = dtype

    def constant(self, value: _Floats) -> _Floats:
        return np.asarray(value, dtype=self.dtype)

    def softmax(self, x: _Floats) -> _Floats:
        if x.size <= _SMALL and x.ndim == 2:
            return np.array([_softmax(row) for row in x.tolist()], x.dtype)
        powers = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return powers / np.sum(powers, axis=-1, keepdims=True)

    def log_softmax(self, x: _Floats) -> _Floats:
        shifted = x - np.max(x, axis=-1, keepdims=True)
        return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))

    def log(self, x: _Floats) -> _Floats:
        with np.errstate(divide="ignore"):
            logs: _Floats = np.log(x)
        return logs

    def sum(self, x: _Floats) -> _Floats:
        return np.sum(x, axis=-1, keepdims=True)

    def is_masked(self, x: _Floats) -> NDArray[np.bool_]:
        return np.isneginf(x)

    def unmasked(self, x: _Floats) -> _Floats:
        return np.not_equal(x, -np.inf).astype(self.dtype)

    def where(self, condition: NDArray[np.bool_], x: Any, y: Any) -> _Floats:
        return np.where(condition, np.asarray(x, self.dtype), np.asarray(y, self.dtype))

    def min(self, x: _Floats) -> _Floats:
        return np.min(x, axis=-1, keepdims=True)

    def max(self, x: _Floats) -> _Floats:
        return np.max(x, axis=-1, keepdims=True)

    def top_k(self, x: _Floats, count: int) -> _Floats:
        largest = np.partition(x, x.shape[-1] - count, axis=-1)[..., x.shape[-1] - count :]
        return np.sort(largest, axis=-1)[..., ::-1]

    def matmul(self, x: _Floats, matrix: _Floats) -> _Floats:
        return x @ matrix

    def scale_rows(self, x: _Floats, factors: _Floats) -> _Floats:
        return x * factors

    def relu(self, x: _Floats) -> _Floats:
        return np.maximum(x, 0.0)

    def tanh(self, x: _Floats) -> _Floats:
        return np.tanh(x)

    def exp(self, x: _Floats) -> _Floats:
        with np.errstate(over="ignore"):
            powers: _Floats = np.exp(x)
        return powers

    def clip_min(self, x: _Floats, floor: float) -> _Floats:
        return np.maximum(x, floor)

    def select(self, x: _Floats, index: int) -> Any:
        return x[index]

    def weighted_sum(self, weights: _Floats, terms: Sequence[Callable[[], _Floats]]) -> _Floats:
        pairs = zip(weights, terms, strict=True)
        return sum(term() * weight for weight, term in pairs if weight != 0)

    def log_sigmoid(self, x: _Floats) -> _Floats:
        return -np.logaddexp(0, -x)

    def greater_equal(self, x: _Floats, y: Any) -> NDArray[np.bool_]:
        return np.asarray(x >= y)

    def less_equal(self, x: _Floats, y: Any) -> NDArray[np.bool_]:
        return np.asarray(x <= y)

    def to_float64(self, x: _Floats) -> _Floats:
        return np.asarray(x, np.float64)

    def cumsum(self, x: _Floats) -> _Floats:
        return np.cumsum(x, axis=-1)

    def descending(self, x: _Floats, classes: int) -> NDArray[np.intp]:
        return np.argsort(-x, axis=-1, kind="stable")

    def argmax(self, x: _Floats) -> NDArray[np.intp]:
        return np.argmax(x, axis=-1, keepdims=True)

    def top_two(self, x: _Floats) -> tuple[NDArray[np.intp], _Floats, _Floats]:
        place = self.argmax(x)
        return place, self.take_along(x, place), self.max(self.put_along(x, place, -np.inf))

    def top_k_indices(self, x: _Floats, count: int) -> NDArray[np.intp]:
        places = np.argpartition(x, x.shape[-1] - count, axis=-1)[..., x.shape[-1] - count :]
        order = np.argsort(np.take_along_axis(x, places, axis=-1), axis=-1)[..., ::-1]
        return np.take_along_axis(places, order, axis=-1)

    def take_along(self, x: _Floats, place: NDArray[np.intp]) -> _Floats:
        return np.take_along_axis(x, place, axis=-1)

    def put_along(self, x: _Floats, place: NDArray[np.intp], values: Any) -> _Floats:
        changed = x.copy()
        np.put_along_axis(changed, place, values, axis=-1)
        return changed

    def pairs(self, x: _Floats, y: _Floats) -> _Floats:
        return np.stack([x, y], axis=-1)

    def gather(self, table: _Floats, position: _Floats) -> _Floats:
        index = position.astype(np.intp)
        if table.ndim == 2:
            index += np.arange(table.shape[0]) * table.shape[1]
        return table.reshape(-1)[index]

    def pick(self, x: _Floats, labels: NDArray[np.int64]) -> _Floats:
        return x[np.arange(len(labels)), labels]

    def is_top_label(self, x: _Floats, labels: NDArray[np.int64]) -> _Floats:
        return (np.argmax(x, axis=-1) == labels).astype(self.dtype)

    def sum_by_label(self, values: _Floats, labels: NDArray[np.int64], count: int) -> _Floats:
        return np.bincount(labels, values, count).astype(self.dtype, copy=False)


def _softmax(row: list[float]) -> list[float]:
    largest = max(row)
    powers = [exp(value - largest) for value in row]
    total = sum(powers)
    return [power / total for power in powers]
