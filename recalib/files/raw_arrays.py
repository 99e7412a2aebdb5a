"""Arrays stored as contiguous bytes: shared by npy, npz and safetensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from recalib.errors import InputError, TooLargeError
from recalib.files.base import Numbers, Rows

#: Bytes read at once: large enough that calls cost little, small enough that copies on the way
#: (decompression, bytes to array) need little memory.
CHUNK_BYTES = 1 << 20
#: A column-major array cannot be read in chunks of rows; its size is limited instead.
_MAX_FORTRAN_BYTES = 64 << 20


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
    _check_order(array, field)
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
    _check_order(array, field)


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


def zip_rows(
    scores: Iterator[Numbers],
    labels: Iterator[Numbers] | None = None,
    weights: Iterator[Numbers] | None = None,
) -> Iterator[Rows]:
    """Yield the arrays of the same rows; all iterators must use the same steps."""
    present = [array for array in (labels, weights) if array is not None]
    for first, *others in zip(scores, *present, strict=True):
        y = None if labels is None else others[0]
        yield first, y, None if weights is None else others[-1]


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


def _check_order(array: RawArray, field: str) -> None:
    if array.fortran and array.nbytes > _MAX_FORTRAN_BYTES:
        raise TooLargeError(
            field,
            found=f"{array.nbytes >> 20} MiB in Fortran order, which cannot be read row by row",
            accepted="C order (save numpy.ascontiguousarray(array))",
        )


def _truncation_error(field: str) -> InputError:
    return InputError(field, found="a file that ends too early", accepted="a complete file")
