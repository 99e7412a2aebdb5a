"""Torch backend: the one that has gradients. Imported while fitting, and never by serving."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["TorchOps"]


class TorchOps:
    """`Ops` on torch tensors of one dtype."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        self.dtype = dtype

    def constant(self, value: NDArray[np.floating[Any]]) -> torch.Tensor:
        return torch.as_tensor(value, dtype=self.dtype)

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)

    def log_softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)

    def log(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=-1, keepdim=True)

    def is_masked(self, x: torch.Tensor) -> torch.Tensor:
        return torch.isneginf(x)

    def where(self, condition: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
        return torch.where(condition, self._tensor(x), self._tensor(y))

    def least(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amin(x, dim=-1, keepdim=True)

    def greatest(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amax(x, dim=-1, keepdim=True)

    def top(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return torch.topk(x, count, dim=-1).values

    def matmul(self, x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return x @ matrix

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)

    def select(self, x: torch.Tensor, index: int) -> torch.Tensor:
        return x[index]

    def pick(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return x.gather(-1, labels[:, None])[:, 0]

    def _tensor(self, x: Any) -> torch.Tensor:
        return torch.as_tensor(x, dtype=self.dtype)
