"""Rows that pass through a device of torch, a chunk at a time.

The logits stay where they are; each pass copies a chunk to the device, computes sums and drops it.
So the memory of the device is bounded by the size of a chunk, for any number of rows.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.errors import InputError

#: Elements of a chunk: on a CPU as in `gradient`, on a GPU enough for its cores to be busy, 128 MB
#: of float64. A pass holds about six arrays of this size.
_CPU_ELEMENTS, _GPU_ELEMENTS = 1_000_000, 16_000_000

#: A function of a chunk: logits (n, K), labels (n,) and weights (n,), on the device.
_OfChunk = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def check_device(name: str) -> torch.device:
    """Return a device of torch.

    Raises
    ------
    InputError: an unknown device, or one that this machine or torch does not have.
    """
    accepted = "cpu, cuda, or cuda:0 and so on"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError("device", found=repr(name), accepted=accepted) from None
    if device.type not in ("cpu", "cuda"):
        raise InputError("device", found=repr(name), accepted=f"{accepted}: fits need float64")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"{name!r}, and {count} GPUs that torch can use"
        raise InputError("device", found=found, accepted="cpu, or a GPU that torch can use")
    return device


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor of an array, which is copied where torch would warn of read-only memory."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


class RowChunks:
    """Logits, labels and weights, in chunks of rows.

    Parameters
    ----------
    logits: (N, K), float16, float32 or float64; an array in memory or mapped from a file.
    labels: (N,), in [0, K).
    weights: (N,), or None for equal weights.
    device: what `check_device` accepts.
    """

    def __init__(
        self, logits: Floats, labels: Integers, weights: NDArray[np.float64] | None, device: str
    ) -> None:
        self.device = check_device(device)
        self.shape = (len(logits), int(logits.shape[1]))
        self._logits, self._labels, self._weights = logits, labels, weights

    def slices(self, width: int | None = None) -> list[slice]:
        """Return the rows of each chunk; `width` is the number of elements that a row needs."""
        elements = _GPU_ELEMENTS if self.device.type == "cuda" else _CPU_ELEMENTS
        step = max(1, elements // (width or self.shape[1]))
        return [slice(i, min(i + step, self.shape[0])) for i in range(0, self.shape[0], step)]

    def chunk(
        self, rows: slice, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits (n, K) and weights (n,) of `dtype`, and labels (n,), on the device."""
        z = as_tensor(self._logits[rows]).to(self.device).to(dtype)
        y = as_tensor(self._labels[rows]).to(self.device, torch.int64)
        if self._weights is None:
            return z, y, torch.ones(len(y), dtype=dtype, device=self.device)
        return z, y, as_tensor(self._weights[rows]).to(self.device, dtype)

    def total(
        self, of_chunk: _OfChunk, dtype: torch.dtype = torch.float64, width: int | None = None
    ) -> NDArray[np.float64]:
        """Return the sum over all chunks of a function, in float64.

        Parameters
        ----------
        dtype: of the logits and weights that the function gets.
        width: as in `slices`.
        """
        total: torch.Tensor | None = None
        with torch.no_grad():
            for rows in self.slices(width):
                part = of_chunk(*self.chunk(rows, dtype)).double()
                total = part if total is None else total.add_(part)
        assert total is not None  # noqa: S101 - there is at least one row
        return total.cpu().numpy()
