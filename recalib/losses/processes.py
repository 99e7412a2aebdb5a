"""The rows of a batch that several processes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed


def gather_rows(*tensors: Tensor, rows: Sequence[int] | None = None) -> tuple[Tensor, ...]:
    """Return the rows of all processes, in the order of their ranks; without a group, the same.

    Every process of the default group must call this, each with tensors of one length, (n, ...);
    lengths may differ between processes, and a process may have no rows.

    Parameters
    ----------
    rows: the lengths of all processes, or numbers in the same proportion, at least 1. Without them
        the lengths are exchanged, which synchronises the device.

    A gradient is that of the sum over processes of a loss that each of them computes from all rows.
    `DistributedDataParallel` divides by their number, so parameters get the gradient that one
    process gets from all rows.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return tensors
    if rows is not None:
        places = len(tensors[0]) // rows[distributed.get_rank()]
        lengths = [places * count for count in rows]
    else:
        size = torch.tensor([len(tensors[0])], device=tensors[0].device)
        sizes = [torch.empty_like(size) for _ in range(distributed.get_world_size())]
        distributed.all_gather(sizes, size)
        lengths = torch.cat(sizes).tolist()
    return tuple(_gather(tensor, lengths) for tensor in tensors)


def _gather(tensor: Tensor, lengths: list[int]) -> Tensor:
    return _Gather.apply(tensor, lengths)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, lengths: list[int]) -> Tensor:
        ctx.lengths = lengths
        # Parts of an all-gather have one size, and are contiguous.
        padded = rows.new_zeros((max(lengths), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in lengths]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rank = distributed.get_rank()
        local = torch.split(gradient, ctx.lengths)[rank]
        # Every process has the same gradient of all rows: the sum is a multiple.
        return local * len(ctx.lengths), None
