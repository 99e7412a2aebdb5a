"""Torch backend, with gradients; imported by fits, never by the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class TorchOps:
    """`Ops` on torch tensors of one dtype on one device."""

    def __init__(
        self, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> None:
        self.dtype = dtype
        self.device = device

    def constant(self, value: NDArray[np.floating[Any]]) -> torch.Tensor:
        return torch.as_tensor(value, dtype=self.dtype, device=self.device)

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)

    def log_softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)

    def log(self, x: torch.Tensor) -> torch.Tensor:
        # The slope of log 0 is infinite; multiplied by a zero gradient it would be NaN.
        positive = x > 0
        return torch.where(positive, torch.log(torch.where(positive, x, 1.0)), -torch.inf)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=-1, keepdim=True)

    def is_masked(self, x: torch.Tensor) -> torch.Tensor:
        return torch.isneginf(x)

    def unmasked(self, x: torch.Tensor) -> torch.Tensor:
        return (x != -torch.inf).to(self.dtype)

    def where(self, condition: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
        return torch.where(condition, self._tensor(x), self._tensor(y))

    def min(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amin(x, dim=-1, keepdim=True)

    def max(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amax(x, dim=-1, keepdim=True)

    def top_k(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return torch.topk(x, count, dim=-1).values

    def matmul(self, x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return x @ matrix

    def scale_rows(self, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        # The slope of −inf · factor in the factor is infinite; times a zero gradient it is NaN.
        masked = self.is_masked(x)
        return torch.where(masked, x, torch.where(masked, 0.0, x) * factors)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)

    def clip_min(self, x: torch.Tensor, floor: float) -> torch.Tensor:
        return torch.clamp(x, min=floor)

    def select(self, x: torch.Tensor, index: int) -> torch.Tensor:
        return x[index]

    def weighted_sum(
        self, weights: torch.Tensor, terms: Sequence[Callable[[], torch.Tensor]]
    ) -> torch.Tensor:
        # All terms are computed, since a weight of 0 has a gradient.
        pairs = zip(weights, terms, strict=True)
        return sum(term() * weight for weight, term in pairs)

    def log_sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.logsigmoid(x)

    def greater_equal(self, x: torch.Tensor, y: Any) -> torch.Tensor:
        return x >= y

    def less_equal(self, x: torch.Tensor, y: Any) -> torch.Tensor:
        return x <= self._tensor(y)

    def to_float64(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64)

    def cumsum(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(dim=-1)

    def descending(self, x: torch.Tensor, classes: int) -> torch.Tensor:
        return torch.sort(x, dim=-1, descending=True, stable=True).indices

    def argmax(self, x: torch.Tensor) -> torch.Tensor:
        # torch.argmax may return any of ties; this returns the first.
        largest = x == torch.amax(x, dim=-1, keepdim=True)
        order = torch.arange(x.shape[-1], 0, -1, device=x.device)
        return (largest * order).argmax(dim=-1, keepdim=True)

    def top_two(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        place = self.argmax(x)
        return place, self.take_along(x, place), self.max(self.put_along(x, place, -torch.inf))

    def top_k_indices(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return torch.topk(x, count, dim=-1).indices

    def take_along(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return x.gather(-1, place)

    def put_along(self, x: torch.Tensor, place: torch.Tensor, values: Any) -> torch.Tensor:
        return x.scatter(-1, place, self._tensor(values).expand(place.shape))

    def pairs(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, y], dim=-1)

    def gather(self, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        index = position.to(torch.int64)
        if table.ndim == 2:
            rows = torch.arange(table.shape[0], device=table.device)
            index = index + rows * table.shape[1]
        return table.reshape(-1)[index]

    def pick(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return x.gather(-1, labels[:, None])[:, 0]

    def is_top_label(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        correct: torch.Tensor = self.argmax(x)[:, 0] == labels
        return correct.to(self.dtype)

    def sum_by_label(self, values: torch.Tensor, labels: torch.Tensor, count: int) -> torch.Tensor:
        where = torch.as_tensor(labels, device=values.device)
        zeros = torch.zeros(count, dtype=self.dtype, device=values.device)
        return zeros.index_add(0, where, values)

    def _tensor(self, x: Any) -> torch.Tensor:
        return torch.as_tensor(x, dtype=self.dtype, device=self.device)
