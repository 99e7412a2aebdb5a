"""Sample weights of the rows of many files: an `.npy` file with one number per row for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import BinaryIO

import numpy as np

from recalib.core.arrays import Numbers, check_row_weights
from recalib.errors import InputError
from recalib.files import DataFile, Input, Task
from recalib.files.base import translate_errors
from recalib.files.fragments import File, Fragment, Source, list_sources, open_stream
from recalib.files.npy import check_length, read_header
from recalib.files.raw_arrays import StreamView, read_exactly, size_of

_FIELD = "weights"
_SUFFIXES = (".npy",)


@dataclass(frozen=True)
class WeightedFragment(Fragment):
    """A fragment whose chunks have weights.

    Parameters
    ----------
    weights: the path or URL of the weights of all rows of the fragment's file.
    factor: what the weights are multiplied by.
    """

    weights: str = ""
    factor: float = 1.0

    @contextmanager
    def open(self, input: Input = "logits", task: Task = "multiclass") -> Iterator[DataFile]:
        with super().open(input, task) as file, ExitStack() as context:
            with _weight_errors():  # not around the block, whose errors are those of the data
                stream = context.enter_context(open_stream(self.weights))
            weights = _Weights(stream, self.weights, file, self.factor)
            file.row_weights = weights.read
            yield file
            weights.check_end()


class _Weights:
    """An open file of weights, read with the rows of a data file."""

    def __init__(self, stream: BinaryIO, location: str, file: DataFile, factor: float) -> None:
        self._stream, self._location, self._file = stream, location, file
        self._factor = factor
        self._read_rows = 0
        with translate_errors("npy"):
            self._array, self._start = read_header(StreamView(stream, 0), _FIELD)
        shape = self._array.shape
        if len(shape) != 1:
            raise InputError(_FIELD, found=f"shape {shape} in {location}", accepted="(N,)")
        check_length(self._array, size_of(stream) - self._start, _FIELD)
        if file.rows_of_file is not None:
            self._check_rows(file.rows_of_file)

    def read(self, row: int, count: int) -> Numbers:
        """Return the weights (count,) of the rows from `row` of the data file's selection on."""
        first = self._file.first_row + row
        if first + count > self._array.shape[0]:
            self._check_rows(first + count)
        size = self._array.dtype.itemsize
        self._stream.seek(self._start + first * size)
        content = read_exactly(self._stream, count * size, _FIELD)
        self._read_rows = row + count
        values = np.frombuffer(content, self._array.dtype)
        return check_row_weights(values, count, _FIELD, first) * self._factor

    def check_end(self) -> None:
        """Check the number of rows of a format whose header does not have it."""
        if self._file.rows_of_file is None and self._read_rows:
            self._check_rows(self._read_rows)

    def _check_rows(self, rows: int) -> None:
        if self._array.shape[0] != rows:
            raise InputError(
                _FIELD,
                found=f"{self._array.shape[0]} numbers in {self._location}",
                accepted=f"{rows}, one for each row",
            )


def list_weights(source: Source | None) -> list[File] | None:
    """Return the `.npy` files of a file, a folder, a glob, a URL or several of these.

    Raises
    ------
    InputError: nothing is there, or cannot be read.
    """
    if source is None:
        return None
    with _weight_errors():
        return list_sources(source, _SUFFIXES)


def check_weights_unchanged(source: Source | None, files: list[File] | None) -> None:
    """Raise `InputError` if `list_weights` now returns other files, sizes or versions."""
    if list_weights(source) != files:
        raise InputError(
            _FIELD,
            found="files that have changed while they were read",
            accepted="files that stay as they are",
        )


def with_weights(fragments: Sequence[Fragment], weights: list[File] | None) -> list[Fragment]:
    """Return fragments with weights, or as they are for None.

    Parameters
    ----------
    weights: as many files as the data has, in the same order. Two or more have the names of the
        data's files, without suffix.

    Raises
    ------
    InputError: the numbers of files differ, or their names do.
    """
    if weights is None:
        return list(fragments)
    files = [file.location for file in weights]
    locations = [*dict.fromkeys(fragment.location for fragment in fragments)]
    if len(files) != len(locations):
        accepted = f"{len(locations)}, one .npy file for each file of the data"
        raise InputError(
            _FIELD, found=f"{len(files)} file{'s' * (len(files) != 1)}", accepted=accepted
        )
    for location, file in zip(locations, files, strict=True):
        name, stem = (PurePosixPath(path).stem for path in (location, file))
        if len(files) > 1 and stem != name:
            raise InputError(_FIELD, found=f"{file} for {location}", accepted=f"{name}.npy")
    weights_of = dict(zip(locations, files, strict=True))
    return [
        WeightedFragment(
            **{field.name: getattr(fragment, field.name) for field in fields(Fragment)},
            weights=weights_of[fragment.location],
        )
        for fragment in fragments
    ]


@contextmanager
def _weight_errors() -> Iterator[None]:
    """Name the weights in errors of the files that hold them."""
    try:
        yield
    except InputError as error:
        if error.field != "data":
            raise
        raise type(error)(_FIELD, found=error.found, accepted=error.accepted) from error
