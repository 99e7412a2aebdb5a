"""Arrays stored as contiguous bytes: shared by npy, npz and safetensors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from recalib.errors import InputError
from recalib.files.base import DataFile, Layout, Numbers, Rows
from recalib.files.column_names import array_names

#: Bytes read at once: large enough that calls cost little, small enough that copies on the way
#: (decompression, bytes to array) need little memory.
CHUNK_BYTES = 1 << 20


class Readable(Protocol):
    """A stream that can be read forward."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class RawArray:
    """Dtype, shape and order of an array, from a header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False

    @property
    def nbytes(self) -> int:
        # Python integers do not overflow for a hostile shape.
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.shape}"


class StreamView:
    """A view of a shared stream with a separate position, so that two can be read in turn."""

    def __init__(self, stream: BinaryIO, start: int) -> None:
        self._stream = stream
        self._position = start

    def read(self, size: int, /) -> bytes:
        self._stream.seek(self._position)
        data = self._stream.read(size)
        self._position += len(data)
        return data


class ArrayFile(DataFile):
    """A file of named arrays: scores (N, K), and where it has them labels and weights."""

    #: Name and header of the array of each field that the file has; the scores are first.
    _arrays: dict[str, tuple[str, RawArray]]

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of all arrays."""

    @abstractmethod
    def _array(self, name: str, field: str) -> RawArray:
        """Return the header of an array, checked against the bytes of the file."""

    @abstractmethod
    def _rows(self, name: str, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
        """Yield the rows of an array, `step` at a time."""

    def _open(self) -> Layout:
        names = array_names(self._names(), self._declared, self._selection)
        scores = self._array(str(names.values), self._declared)
        rows, classes, dtype = check_shape(scores, self._declared)
        self._arrays = {self._declared: (str(names.values), scores)}
        for field, name, shape in (
            ("labels", names.labels, self._labels_shape(rows, classes)),
            ("weights", names.weights, (rows,)),
        ):
            if name is not None:
                array = self._array(name, field)
                check_row_shape(array, shape, field)
                self._arrays[field] = (name, array)
        return Layout(rows, classes, dtype, names.labels is not None, names.weights is not None)

    def _read(self, step: int) -> Iterator[Rows]:
        readers = [self._rows(*array, step, field) for field, array in self._arrays.items()]
        for parts in zip(*readers, strict=True):
            rows = dict(zip(self._arrays, parts, strict=True))
            yield rows[self._declared], rows.get("labels"), rows.get("weights")


def open_file(path: Path, field: str = "data") -> BinaryIO:
    """Open a file for reading; raise `InputError` if that is not possible."""
    try:
        return path.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(
            field, found=f"{path}: {error.strerror}", accepted="a readable file"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise InputError(field, found=repr(str(path)), accepted="a file name") from error


def size_of(stream: BinaryIO) -> int:
    """Return the length of the whole stream in bytes."""
    return stream.seek(0, 2)


def check_dtype(dtype: np.dtype[Any], field: str) -> None:
    """Raise `InputError` unless `recalib.core.arrays` accepts the dtype."""
    if dtype.hasobject:
        raise InputError(
            field,
            found="an array of Python objects (a pickle), which is never loaded",
            accepted="an array of numbers",
        )
    if dtype.kind not in ("biuf" if field == "labels" else "iuf") or dtype.itemsize > 8:
        accepted = (
            "class numbers, which are integers from 0 (names of classes are read from tables, such "
            "as .csv and .parquet); multilabel: zeros and ones, (N, K)"
            if field == "labels"
            else "float16, float32, float64 or integers"
        )
        raise InputError(field, found=f"dtype {dtype}", accepted=accepted)


def check_shape(array: RawArray, field: str) -> tuple[int, int, np.dtype[Any]]:
    """Return N, K and the dtype of the chunks of an array (N, K) or (N,), or raise `InputError`."""
    check_dtype(array.dtype, field)
    if len(array.shape) not in (1, 2) or min(array.shape) < 0:
        raise InputError(field, found=f"shape {array.shape}", accepted="shape (N, K)")
    native = array.dtype.newbyteorder("=")
    rows, classes = (*array.shape, 1)[:2]
    return rows, classes, native if native.kind == "f" else np.dtype(np.float64)


def check_row_shape(array: RawArray, shape: tuple[int, ...], field: str = "labels") -> None:
    """Raise `InputError` unless `array` can be labels, or weights, of this shape."""
    check_dtype(array.dtype, field)
    if array.shape != shape and array.shape != (*shape, 1):
        is_matrix = field == "labels" and len(array.shape) == 2 and len(shape) == 1
        hint = ", a class number for each row; (N, K) is of the task multilabel"
        accepted = f"shape {shape}{hint if is_matrix else ''}"
        raise InputError(field, found=f"shape {array.shape}", accepted=accepted)


def read_rows(stream: Readable, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
    """Yield the rows of `array`, `step` at a time, from a stream positioned at its first byte.

    Raises
    ------
    InputError: the stream ends before the array does.
    """
    if array.fortran and len(array.shape) > 1:
        transposed = np.empty(array.shape[::-1], array.dtype)
        _fill(stream, transposed, field)
        rows_first = transposed.T
        for start in range(0, array.shape[0], step):
            yield _native(np.ascontiguousarray(rows_first[start : start + step]))
        return
    for start in range(0, array.shape[0], step):
        rows = np.empty((min(step, array.shape[0] - start), *array.shape[1:]), array.dtype)
        _fill(stream, rows, field)
        yield _native(rows)


def read_exactly(stream: Readable, size: int, field: str) -> bytes:
    """Return the next `size` bytes (few), or raise `InputError`."""
    chunks: list[bytes] = []
    missing = size
    while missing > 0 and (chunk := stream.read(min(missing, CHUNK_BYTES))):
        chunks.append(chunk)
        missing -= len(chunk)
    if missing:
        raise _truncation_error(field)
    return b"".join(chunks)


def _fill(stream: Readable, array: Numbers, field: str) -> None:
    target = array.view(np.uint8).reshape(-1).data
    position = 0
    while position < len(target):
        chunk = stream.read(min(CHUNK_BYTES, len(target) - position))
        if not chunk:
            raise _truncation_error(field)
        target[position : position + len(chunk)] = chunk
        position += len(chunk)


def _native(array: Numbers) -> Numbers:
    if array.dtype.isnative:
        return array
    return array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))


def _truncation_error(field: str) -> InputError:
    return InputError(field, found="a file that ends too early", accepted="a complete file")
