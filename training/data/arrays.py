"""Arrays in `.npz` files."""

from __future__ import annotations

import typing
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from training.data.base import Files, Parts, Source
from training.data.classes import Rows, check_classes, parts_of
from training.data.pixels import Normalisation, Pixels, scale_of
from training.data.split import Inputs, keys_of, rows_of, tensor_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass
class Arrays(Source):
    """Arrays: `inputs` (N, ...) and `labels` (N,), or (N, H, W) for inputs (N, C, H, W).

    Models receive floats as float32 and integers as int64, unscaled. Images of uint8 need
    `normalise`, and become float32 (N, C, H, W).

    Options: `train` and optionally `test` and `validation`: `.npz` files, or pairs of `.npy` files,
    inputs and labels; `inputs` and `labels`, the names of the arrays in `.npz`; `layout`, the axes
    of images after N: `chw`, `hwc`, or `hw` without channels; `normalise`, see
    `training.data.pixels`; `classes`, the number of classes or their names, by default from the
    training labels; `ignore_index`, the label of void pixels in labels (N, H, W), by default none.
    """

    train: str | list[str]
    test: str | list[str] | None = None
    validation: str | list[str] | None = None
    inputs: str = "inputs"
    labels: str = "labels"
    layout: Literal["chw", "hwc", "hw"] | None = None
    normalise: Normalisation | None = None
    classes: int | list[str] | None = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_classes(self.classes)
        for name in ("train", "test", "validation"):
            files = getattr(self, name)
            if isinstance(files, list) and len(files) != 2:
                found = f"{len(files)} files"
                raise InputError(f"options.{name}", found=found, accepted="inputs and labels")

    def read(self, files: Files) -> Parts:
        rows = self.of_splits(partial(self._read, files))
        train = rows["train"].inputs
        shape = _row_shape(train)
        scale = None
        if self.normalise is not None and isinstance(train, Pixels):
            scale = scale_of(self.normalise, train)
        for name, part in rows.items():
            if _row_shape(part.inputs) != shape:
                found, accepted = f"rows {_row_shape(part.inputs)}", f"{shape}, as in train"
                raise InputError(f"data.options.{name}", found=found, accepted=accepted)
            if scale is not None and isinstance(part.inputs, Pixels):
                rows[name] = part._replace(inputs=part.inputs.scaled(scale))
        facts = {"features": int(np.prod(shape))}
        if len(shape) == 3:
            facts["channels"] = shape[0]
        return parts_of(rows, facts, self.classes, ignore_index=self.ignore_index)

    def _read(self, files: Files, name: str) -> Rows:
        where, (values, labels) = self._load(files, name)
        field = where[0]
        if values.ndim < 2 or values.dtype.kind not in "fiu" or not values.size:
            found = f"{values.dtype} {values.shape}"
            raise InputError(field, found=found, accepted="numbers (N, ...)")
        values = self._channels_first(values)
        dense = values.ndim == 4 and labels.shape == (len(values), *values.shape[2:])
        if not dense and labels.shape != values.shape[:1]:
            raise InputError(
                where[1],
                found=f"{labels.shape} for inputs {values.shape}",
                accepted="(N,), or (N, H, W) for inputs (N, C, H, W)",
            )
        return Rows(self._inputs(values, field), labels, where[1])

    def _load(self, files: Files, name: str) -> tuple[tuple[str, str], list[NDArray[Any]]]:
        """Return inputs and labels of a split, and the names of both for errors."""
        option, field = getattr(self, name), f"data.options.{name}"
        if isinstance(option, str):
            path = files.path(option, name)
            arrays = _read_npz(path, (self.inputs, self.labels), field)
            fields = (f"{path.name}: {self.inputs}", f"{path.name}: {self.labels}")
            return fields, [arrays[self.inputs], arrays[self.labels]]
        paths = [files.path(part, name) for part in option]
        return (paths[0].name, paths[1].name), [_read_npy(path, field) for path in paths]

    def _channels_first(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return images as (N, C, H, W); other inputs unchanged."""
        found = f"inputs {values.shape}"
        if self.layout is None:
            if values.ndim == 4 and values.shape[3] in (1, 3):
                accepted = 'layout = "hwc" for (N, H, W, C), or "chw" for (N, C, H, W)'
                raise InputError("data.options.layout", found=found, accepted=accepted)
            return values
        if values.ndim != 1 + len(self.layout):
            accepted = f"{1 + len(self.layout)} axes for the layout {self.layout!r}"
            raise InputError("data.options.layout", found=found, accepted=accepted)
        if self.layout == "hwc":
            return np.moveaxis(values, 3, 1)
        return values[:, None] if self.layout == "hw" else values

    def _inputs(self, values: NDArray[Any], field: str) -> Inputs:
        is_images = values.ndim == 4 and values.dtype == np.uint8
        if is_images != (self.normalise is not None):
            accepted = ", ".join(typing.get_args(Normalisation)) + " for images of uint8"
            found = f"{self.normalise or 'nothing'} for {values.dtype} inputs {values.shape}"
            raise InputError("data.options.normalise", found=found, accepted=accepted)
        if is_images:
            return Pixels(np.ascontiguousarray(np.moveaxis(values, 1, 3)))
        with np.errstate(over="ignore"):
            inputs = Array(values)
        if inputs.values.dtype.kind == "f" and not np.isfinite(inputs.values).all():
            row = int(np.argwhere(~np.isfinite(inputs.values))[0, 0])
            accepted = "finite numbers that float32 can hold"
            raise InputError(f"{field}[{row}]", found="NaN or infinity", accepted=accepted)
        return inputs


def _row_shape(inputs: Inputs) -> tuple[int, ...]:
    if isinstance(inputs, Pixels):
        return (inputs.channels, inputs.height, inputs.width)
    assert isinstance(inputs, Array)  # noqa: S101 - this module creates it
    return inputs.values.shape[1:]


class Array(Inputs):
    """Rows of one array (N, ...)."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        kind = np.float32 if values.dtype.kind == "f" else np.int64
        self.values: NDArray[np.generic] = np.ascontiguousarray(values, dtype=kind)
        self._tensor = tensor_of(self.values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def device(self) -> torch.device:
        return self._tensor.device

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def to(self, device: torch.device) -> Array:
        copy = Array(self.values)
        copy._tensor = self._tensor.to(device)
        return copy

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        return rows_of(self._tensor, rows)

    def keys(self) -> NDArray[np.bytes_]:
        return keys_of(self.values)


def _read_npz(path: Path, names: tuple[str, ...], field: str) -> dict[str, NDArray[Any]]:
    """Return arrays of a `.npz` file; pickles are refused."""
    # Opened here, because NumPy does not close a file of another format.
    with _errors(path, field, ".npz"), path.open("rb") as stream, np.load(stream) as file:
        if not isinstance(file, np.lib.npyio.NpzFile):
            found, accepted = f"{path.name}: one array", "a .npz file, or two .npy files"
            raise InputError(field, found=found, accepted=accepted)
        for name in names:
            if name not in file:
                accepted = f"one of its arrays: {', '.join(file.files)}"
                raise InputError(field, found=f"no array {name!r}", accepted=accepted)
        return {name: file[name] for name in names}


def _read_npy(path: Path, field: str) -> NDArray[Any]:
    """Return the array of a `.npy` file; pickles are refused."""
    with _errors(path, field, ".npy"), path.open("rb") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def _errors(path: Path, field: str, suffix: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        found = f"{path.name}: {error}"
        raise InputError(field, found=found, accepted=f"a {suffix} file") from error
