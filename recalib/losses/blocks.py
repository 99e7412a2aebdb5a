"""Rows of a batch, some after others.

What a formula makes of logits on its way is as large as they are: of a large batch on a CPU none of
it stays in the cache, and takes longer to write and to read than to compute. Some rows at a time,
it stays.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["blocks", "first_largest", "first_smallest", "is_large", "room"]

#: Logits of a block: it and two arrays beside it fit a core's cache, and it is large enough for
#: torch's calls to take little of the time.
_BLOCK = 2**17
#: Logits from which a batch is gone through in blocks: 8 MB in float32.
_LARGE = 2**21


def is_large(logits: Tensor) -> bool:
    """Whether logits (N, K) are worth going through in blocks; on an accelerator they are not."""
    return logits.device.type == "cpu" and logits.numel() >= _LARGE


def blocks(logits: Tensor, *more: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of logits (N, K) and of more arrays (N, ...) together, as views."""
    count = _rows(logits)
    return zip(*(torch.split(one, count) for one in (logits, *more)), strict=True)


def room(logits: Tensor) -> Tensor:
    """Return an array for what is made of any one block, its contents undefined."""
    return logits.new_empty(min(_rows(logits), len(logits)), logits.shape[1])


def first_largest(x: Tensor) -> Tensor:
    """Return the place of the largest in each row, (N,), the first among equals; no gradient."""
    # torch looks at one number at a time there, NumPy at as many as a register holds.
    if x.device.type == "cpu":
        return torch.from_numpy(x.detach().numpy().argmax(axis=1))
    return x.detach().argmax(dim=1)


def first_smallest(x: Tensor) -> Tensor:
    """Return the place of the smallest in each row, (N,), the first among equals; no gradient."""
    if x.device.type == "cpu":
        return torch.from_numpy(x.detach().numpy().argmin(axis=1))
    return x.detach().argmin(dim=1)


def _rows(logits: Tensor) -> int:
    return max(_BLOCK // logits.shape[1], 1)
