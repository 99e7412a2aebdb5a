"""Arrays in `.npz` files."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recalib.errors import InputError
from recalib.options import check_option
from training.data.base import Files, Parts, Source, checked_labels
from training.data.split import Inputs, Split, keys_of

__all__ = ["Array", "Arrays"]


@dataclass
class Arrays(Source):
    """Arrays: `inputs` (N, ...) and `labels` (N,), or (N, H, W) for inputs (N, C, H, W).

    Models receive floats as float32 and integers as int64, unscaled.

    Options: `train`, `test` and optionally `validation`: `.npz` files; `inputs` and `labels`, the
    names of the arrays; `classes`, by default the largest training label plus 1.
    """

    train: str
    test: str
    validation: str | None = None
    inputs: str = "inputs"
    labels: str = "labels"
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            check_option("classes", self.classes, self.classes >= 2, "2 or more")

    def read(self, files: Files) -> Parts:
        train = self._read(files, "train", self.classes)
        classes = self.classes or int(train.labels.max()) + 1
        shape = _values(train).shape[1:]
        parts = {"train": train}
        for name in ("validation", "test"):
            if getattr(self, name) is not None:
                parts[name] = self._read(files, name, classes)
                row_shape = _values(parts[name]).shape[1:]
                if row_shape != shape:
                    field = f"data.options.{name}"
                    raise InputError(
                        field, found=f"rows {row_shape}", accepted=f"{shape}, as in train"
                    )
        facts = {"features": int(np.prod(shape))}
        if len(shape) == 3:
            facts["channels"] = shape[0]
        return Parts(parts["train"], parts.get("validation"), parts["test"], classes, facts)

    def _read(self, files: Files, name: str, classes: int | None) -> Split:
        path = files.path(getattr(self, name), name)
        arrays = _read_npz(path, (self.inputs, self.labels), f"data.options.{name}")
        values, labels = arrays[self.inputs], arrays[self.labels]
        field = f"{path.name}: {self.inputs}"
        if values.ndim < 2 or values.dtype.kind not in "fiu" or not values.size:
            found = f"{values.dtype} {values.shape}"
            raise InputError(field, found=found, accepted="numbers (N, ...)")
        with np.errstate(over="ignore"):
            inputs = values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
        if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
            row = int(np.argwhere(~np.isfinite(inputs))[0, 0])
            accepted = "finite numbers that float32 can hold"
            raise InputError(f"{field}[{row}]", found="NaN or infinity", accepted=accepted)
        dense = values.ndim == 4 and labels.shape == (len(values), *values.shape[2:])
        if not dense and labels.shape != values.shape[:1]:
            raise InputError(
                f"{path.name}: {self.labels}",
                found=f"{labels.shape} for inputs {values.shape}",
                accepted="(N,), or (N, H, W) for inputs (N, C, H, W)",
            )
        labels = checked_labels(labels, f"{path.name}: {self.labels}", classes)
        return Split.with_all_rows(Array(inputs), labels)


def _values(split: Split) -> NDArray[np.generic]:
    assert isinstance(split.inputs, Array)  # noqa: S101 - this module creates it
    return split.inputs.values


class Array(Inputs):
    """Rows of one array (N, ...)."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        kind = np.float32 if values.dtype.kind == "f" else np.int64
        self.values: NDArray[np.generic] = np.ascontiguousarray(values, dtype=kind)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.values[rows])

    def keys(self) -> NDArray[np.bytes_]:
        return keys_of(self.values)


def _read_npz(path: Path, names: tuple[str, ...], field: str) -> dict[str, NDArray[np.generic]]:
    """Return arrays of a `.npz` file; pickles are refused."""
    try:
        # Opened here, because NumPy does not close a file of another format.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(field, found=f"{path.name}: one array", accepted="a .npz file")
            for name in names:
                if name not in file:
                    accepted = f"one of its arrays: {', '.join(file.files)}"
                    raise InputError(field, found=f"no array {name!r}", accepted=accepted)
            return {name: file[name] for name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(field, found=f"{path.name}: {error}", accepted="a .npz file") from error
