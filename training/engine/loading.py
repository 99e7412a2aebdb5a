"""Loading of batches, in worker processes or in this one.

A batch is a function of its rows and its seed alone, so the number of workers does not change it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from recalib.errors import InputError
from training.data import Augmentation, Split
from training.data.split import copy_to

__all__ = ["Share", "load_batches", "to_device"]


class Share(NamedTuple):
    """The rows of a batch: positions in a split (n,)."""

    rows: NDArray[Any]
    #: Determines the augmentation; None for rows without augmentation.
    seed: int | None = None


class _Failure(NamedTuple):
    """An `InputError` of a worker; torch would replace the error by another type."""

    field: str
    found: str
    accepted: str


class _Batches(Dataset[Any]):
    def __init__(self, split: Split, shares: Sequence[Share], augment: Augmentation | None) -> None:
        self._split, self._shares, self._augment = split, shares, augment

    def __len__(self) -> int:
        return len(self._shares)

    def __getitem__(self, number: int) -> Any:
        rows, seed = self._shares[number]
        if seed is None or self._augment is None:
            return self._split.batch(rows)
        generator = torch.Generator().manual_seed(seed)
        return self._augment(self._split.training_batch(rows, generator), generator)


class _WorkerBatches(_Batches):
    """Batches, or the failure of a batch."""

    def __getitem__(self, number: int) -> Any:
        try:
            return super().__getitem__(number)
        except InputError as error:
            return _Failure(error.field, error.found, error.accepted)


def load_batches(
    fabric: Fabric,
    split: Split,
    shares: Sequence[Share],
    *,
    augment: Augmentation | None = None,
    workers: int = 0,
) -> Iterator[Any]:
    """Yield the inputs of each share on the device of `fabric`, in order.

    Parameters
    ----------
    augment: applied to shares with a seed.
    workers: processes that load ahead of their use, two batches each. Without them, a batch is
        loaded when it is used. Inputs that are on a GPU need none.

    Raises
    ------
    InputError: a row that cannot be read any more.
    """
    if not workers or split.inputs.device.type != "cpu":
        for number in range(len(shares)):
            yield to_device(fabric, _Batches(split, shares, augment)[number])
        return
    loader = DataLoader(
        _WorkerBatches(split, shares, augment),
        batch_size=None,
        num_workers=workers,
        # Forked processes share the rows in memory; others would copy them.
        multiprocessing_context="fork",
        worker_init_fn=_reset_signals,
        pin_memory=fabric.device.type == "cuda",
        # The loader draws a seed, by default from the generator of the network.
        generator=torch.Generator(),
        collate_fn=_unchanged,
    )
    for batch in loader:
        if isinstance(batch, _Failure):
            raise InputError(batch.field, found=batch.found, accepted=batch.accepted)
        yield to_device(fabric, batch)


def to_device(fabric: Fabric, batch: Any) -> Any:
    """Return the tensors of a batch on the device of `fabric`; the host does not wait for it."""
    if isinstance(batch, Tensor):
        return copy_to(batch, fabric.device)
    if isinstance(batch, Mapping):
        return {name: to_device(fabric, value) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(to_device(fabric, value) for value in batch)
    return batch


def _reset_signals(_number: int) -> None:
    # Ctrl-C reaches all processes: the main process stops the workers when it is ready.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _unchanged(batch: Any) -> Any:
    return batch
