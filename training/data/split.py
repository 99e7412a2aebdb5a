"""Rows to train on, to choose by and to test on."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Batch", "Indices", "Inputs", "Split", "Splits", "keys_of"]

#: What a model is called with.
Batch: TypeAlias = Tensor | tuple[Tensor, ...]
Indices: TypeAlias = Sequence[int] | NDArray[np.int64]


class Inputs(ABC):
    """What models are shown, row by row; a source makes it, and nothing changes it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows as a model takes them, without augmentation."""

    @abstractmethod
    def keys(self) -> NDArray[np.bytes_]:
        """Return 16 bytes for each row, equal where rows are: a digest of what they hold."""


@dataclass(frozen=True)
class Split:
    """Some rows of some inputs, in an order of their own, with their labels.

    `labels` int64 (N,), or (N, H, W) where every place has one; `rows` int64 (N,), where they stand
    in `inputs`.
    """

    inputs: Inputs
    labels: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def whole(cls, inputs: Inputs, labels: NDArray[np.int64]) -> Split:
        """Return all rows in their own order."""
        return cls(inputs, labels, np.arange(len(inputs)))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> Batch:
        """Return the inputs at these places of the split, without augmentation."""
        return self.inputs.batch(self.rows[np.asarray(indices, dtype=np.int64)])

    def some(self, indices: Indices) -> Split:
        """Return the rows at these places, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return Split(self.inputs, self.labels[chosen], self.rows[chosen])

    def keys(self) -> NDArray[np.bytes_]:
        """Return 16 bytes for each row, equal where inputs are."""
        return self.inputs.keys()[self.rows]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows' contents and labels in their order, and of where they stood."""
        whole = hashlib.sha256()
        for part in (self.keys(), self.labels.astype("<i8"), self.rows.astype("<i8")):
            whole.update(np.ascontiguousarray(part).tobytes())
        return whole.hexdigest()


@dataclass(frozen=True)
class Splits:
    """All that a training run is given.

    `classes` K; `facts`, what a model must be told of the inputs, such as ``channels``,
    ``features`` or ``vocabulary``; `repeated`, how many test rows are training rows as well, to
    the byte.
    """

    train: Split
    validation: Split
    test: Split
    classes: int
    facts: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest of each split by name."""
        return {name: getattr(self, name).digest for name in ("train", "validation", "test")}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the three splits' digests: the same only for the same rows everywhere."""
        return hashlib.sha256("".join(self.digests.values()).encode()).hexdigest()


def keys_of(rows: Sequence[bytes] | NDArray[np.generic]) -> NDArray[np.bytes_]:
    """Return 16 bytes for each row of an array, or for each of some bytes."""
    if isinstance(rows, np.ndarray):
        rows = [row.tobytes() for row in rows]
    digests = b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in rows)
    # Void, not bytes: numpy strips zeros from the end of bytes.
    return np.frombuffer(digests, dtype="V16")
