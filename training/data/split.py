"""Training, validation and test splits."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# torch takes seconds to import: a data set is refused without it.
if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

#: The input of a model.
Batch: TypeAlias = "Tensor | tuple[Tensor, ...] | dict[str, Tensor]"
Indices: TypeAlias = Sequence[int] | NDArray[np.int64]


class Inputs(ABC):
    """The inputs of a data set by row; immutable."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows as a batch for a model; each call returns the same."""

    def training_batch(self, rows: NDArray[np.int64], generator: Generator) -> Batch:
        """Return these rows; `generator` determines random ones, as of a user's `Dataset`."""
        return self.batch(rows)

    @abstractmethod
    def keys(self) -> NDArray[np.bytes_]:
        """Return a digest of 16 bytes for each row; equal rows have equal digests."""

    @property
    def device(self) -> torch.device:
        """The device of the batches."""
        import torch

        return torch.device("cpu")

    @property
    def nbytes(self) -> int | None:
        """The bytes of all rows in memory; None if rows are not arrays that a device can hold."""
        return None

    def to(self, device: torch.device) -> Inputs:
        """Return the same rows on another device; only for inputs with `nbytes`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Split:
    """An ordered selection of rows of `inputs`, with labels.

    `labels` int64 (N,), or (N, H, W) for dense labels; `rows` int64 (N,), indices into `inputs`.
    """

    inputs: Inputs
    labels: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def with_all_rows(cls, inputs: Inputs, labels: NDArray[np.int64]) -> Split:
        """Return a split of all rows in the order of `inputs`."""
        return cls(inputs, labels, np.arange(len(inputs)))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> Batch:
        """Return the inputs at these indices of the split; each call returns the same."""
        return self.inputs.batch(self.rows[np.asarray(indices, dtype=np.int64)])

    def training_batch(self, indices: Indices, generator: Generator) -> Batch:
        """Return the inputs at these indices; `generator` determines random ones."""
        return self.inputs.training_batch(self.rows[np.asarray(indices, dtype=np.int64)], generator)

    def subset(self, indices: Indices) -> Split:
        """Return the split of the rows at these indices, in that order."""
        rows = np.asarray(indices, dtype=np.int64)
        return Split(self.inputs, self.labels[rows], self.rows[rows])

    def keys(self) -> NDArray[np.bytes_]:
        """Return a digest of 16 bytes for each row; equal inputs have equal digests."""
        return self.inputs.keys()[self.rows]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows' contents, labels and indices, in order."""
        hasher = hashlib.sha256()
        for part in (self.keys(), self.labels.astype("<i8"), self.rows.astype("<i8")):
            hasher.update(np.ascontiguousarray(part).tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True)
class Splits:
    """The data of a training run.

    `classes` K; `facts`, properties of the inputs that a model needs, such as ``channels``,
    ``features`` or ``vocabulary``; `repeated`, the number of test rows that are byte for byte also
    training rows; `names`, the names of the classes in the order of the logits, if they are known;
    `ignore_index`, the label of void pixels.
    """

    train: Split
    validation: Split
    test: Split
    classes: int
    facts: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0
    names: tuple[str, ...] | None = None
    ignore_index: int | None = None

    @property
    def is_dense(self) -> bool:
        """Whether each pixel has a label."""
        return self.train.labels.ndim > 1

    def on_device(self, device: torch.device, max_bytes: int) -> Splits:
        """Return the splits with inputs on a device, so far as they fit into `max_bytes`.

        The training rows come first. Inputs that several splits share are moved once.
        """
        moved: dict[int, Inputs] = {}
        for split in (self.train, self.validation, self.test):
            inputs, size = split.inputs, split.inputs.nbytes
            if id(inputs) not in moved and size is not None and size <= max_bytes:
                moved[id(inputs)] = inputs.to(device)
                max_bytes -= size
        train, validation, test = (
            replace(split, inputs=moved.get(id(split.inputs), split.inputs))
            for split in (self.train, self.validation, self.test)
        )
        return replace(self, train=train, validation=validation, test=test)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of each split by name."""
        return {name: getattr(self, name).digest for name in ("train", "validation", "test")}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the digests of the three splits."""
        return hashlib.sha256("".join(self.digests.values()).encode()).hexdigest()


def tensor_of(values: NDArray[Any] | Tensor) -> Tensor:
    """Return an array as a tensor, without a copy where that is possible."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def rows_of(values: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """Return rows of a tensor, on its device."""
    return values.index_select(0, copy_to(tensor_of(rows), values.device))


def copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the host does not wait for a GPU.

    Only pinned memory is copied in the background.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def keys_of(rows: Iterable[bytes] | NDArray[np.generic]) -> NDArray[np.bytes_]:
    """Return a digest of 16 bytes for each row of an array, or for each bytes object."""
    if isinstance(rows, np.ndarray):
        rows = (row.tobytes() for row in rows)
    digests = b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in rows)
    # Void instead of bytes, because NumPy strips trailing zeros of bytes.
    return np.frombuffer(digests, dtype="V16")
