"""Rows that pass through a device of torch, a chunk at a time.

Rows that take less than half of the free memory of a GPU are copied to it once. Others stay where
they are; each pass copies a chunk to the device, computes sums and drops it. So the memory of the
device is bounded for any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.errors import InputError
from recalib.fitting.rows import ArrayRows, Block, Kernel

#: Elements of a chunk: on a CPU as many as torch holds in memory, since larger arrays get new
#: memory from the system for every operation, which costs five times as much as the operation; on a
#: GPU enough for its cores to be busy, 128 MB of float64. A pass holds about six of these arrays.
_CPU_ELEMENTS, _GPU_ELEMENTS = 1_000_000, 16_000_000
#: Share of the free memory of a GPU that rows may use.
_KEPT_SHARE = 0.5


class DeviceRows(ArrayRows):
    """Rows in memory, or mapped from a file, whose kernels get tensors.

    Parameters
    ----------
    device: what `check_device` accepts.
    keep: returns logits that stay on the device, in float64; by default all are copied each time.
    """

    def __init__(
        self,
        rows: ArrayRows,
        device: str,
        *,
        keep: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        super().__init__(rows.logits, rows.labels, rows.weights)
        self.device = check_device(device)
        self._kept: Block | None = None
        if keep is not None:
            block = self._on_device(self.block._replace(weights=self.block.counts))
            self._kept = block._replace(logits=keep(block.logits.double()))
        elif rows.logits.nbytes < _KEPT_SHARE * _free_bytes(self.device):
            self._kept = self._on_device(self.block)

    @property
    def in_memory(self) -> None:
        return None

    def sum(self, kernel: Kernel, *, whole: bool = False) -> Numbers:
        elements = _GPU_ELEMENTS if self.device.type == "cuda" else _CPU_ELEMENTS
        count, classes = self.shape
        blocks = (self._kept or self.block).parts(count if whole else max(1, elements // classes))
        return np.asarray(sum(kernel(self._on_device(block)) for block in blocks))

    def _on_device(self, block: Block) -> Block:
        logits, labels, weights, tops = (
            None if values is None else as_tensor(values).to(self.device) for values in block
        )
        assert logits is not None  # noqa: S101
        assert labels is not None  # noqa: S101
        return Block(logits, labels.to(torch.int64), weights, tops)


def _free_bytes(device: torch.device) -> int:
    """Return the free memory of a GPU; 0 of a CPU, whose rows are in memory already."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


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
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = f"{name!r}, and {torch.cuda.device_count()} GPUs that torch can use"
        raise InputError("device", found=found, accepted="cpu, or a GPU that torch can use")
    return device


def as_tensor(array: NDArray[Any] | torch.Tensor) -> torch.Tensor:
    """Return a tensor of an array, which is copied where torch would warn of read-only memory."""
    if isinstance(array, torch.Tensor):
        return array
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
