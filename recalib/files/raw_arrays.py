"""Arrays as they lie in a file, bytes in a row: what npy, npz and safetensors share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np

from recalib.errors import InputError, TooLargeError
from recalib.files.base import Numbers

__all__ = [
    "PIECE",
    "RawArray",
    "Readable",
    "Window",
    "check_dtype",
    "check_labels_shape",
    "check_shape",
    "paired",
    "read_exactly",
    "read_rows",
    "size_of",
]

#: What is asked of a stream at once: large enough that calls cost nothing, small enough that
#: the copies on the way (decompression, bytes to array) stay invisible.
PIECE = 1 << 20
#: A column-major array can only be read as a whole; beyond this it would not be "bounded".
_MOST_FORTRAN = 64 << 20


class Readable(Protocol):
    """As much of a file as reading forward takes."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class RawArray:
    """What a header claims about an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False

    @property
    def nbytes(self) -> int:
        # Python's integers, since a hostile shape overflows every other kind.
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.shape}"


class Window:
    """A part of a shared stream with a position of its own, so that two can be read in turn."""

    def __init__(self, stream: BinaryIO, start: int) -> None:
        self._stream = stream
        self._position = start

    def read(self, size: int, /) -> bytes:
        self._stream.seek(self._position)
        data = self._stream.read(size)
        self._position += len(data)
        return data


def size_of(stream: BinaryIO) -> int:
    """Return the length of the whole stream in bytes."""
    return stream.seek(0, 2)


def check_dtype(dtype: np.dtype[Any], field: str) -> None:
    """Raise `InputError` unless these are numbers that `recalib.arrays` can take."""
    if dtype.hasobject:
        raise InputError(
            field,
            found="an array of Python objects (a pickle), which is never loaded",
            accepted="an array of numbers",
        )
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise InputError(
            field, found=f"dtype {dtype}", accepted="float16, float32, float64 or integers"
        )


def check_shape(array: RawArray, field: str) -> np.dtype[Any]:
    """Return the dtype in which the (N, K) `array` will arrive, or raise `InputError`."""
    check_dtype(array.dtype, field)
    if len(array.shape) != 2 or min(array.shape) < 0:
        raise InputError(field, found=f"shape {array.shape}", accepted="shape (N, K)")
    _check_order(array, field)
    native = array.dtype.newbyteorder("=")
    return native if native.kind == "f" else np.dtype(np.float64)


def check_labels_shape(array: RawArray, rows: int, field: str = "labels") -> None:
    """Raise `InputError` unless `array` can be the labels of `rows` rows."""
    check_dtype(array.dtype, field)
    if array.shape != (rows,):
        raise InputError(field, found=f"shape {array.shape}", accepted=f"shape ({rows},)")
    _check_order(array, field)


def read_rows(stream: Readable, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
    """Yield the rows of `array`, `step` at a time, from a stream that stands at its first byte.

    Raises
    ------
    InputError: the stream ends before the array does.
    """
    if array.fortran and len(array.shape) > 1:
        whole = np.empty(array.shape[::-1], array.dtype)
        _fill(stream, whole, field)
        rows_first = whole.T
        for start in range(0, array.shape[0], step):
            yield _native(np.ascontiguousarray(rows_first[start : start + step]))
        return
    for start in range(0, array.shape[0], step):
        rows = np.empty((min(step, array.shape[0] - start), *array.shape[1:]), array.dtype)
        _fill(stream, rows, field)
        yield _native(rows)


def paired(
    logits: Iterator[Numbers], labels: Iterator[Numbers] | None
) -> Iterator[tuple[Numbers, Numbers | None]]:
    """Yield logits with the labels of the same rows; both must come in the same steps."""
    if labels is None:
        for part in logits:
            yield part, None
    else:
        yield from zip(logits, labels, strict=True)


def read_exactly(stream: Readable, size: int, field: str) -> bytes:
    """Return the next `size` bytes (few), or raise `InputError`."""
    pieces: list[bytes] = []
    missing = size
    while missing > 0 and (piece := stream.read(min(missing, PIECE))):
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise _ended(field)
    return b"".join(pieces)


def _fill(stream: Readable, array: Numbers, field: str) -> None:
    target = array.view(np.uint8).reshape(-1).data
    position = 0
    while position < len(target):
        piece = stream.read(min(PIECE, len(target) - position))
        if not piece:
            raise _ended(field)
        target[position : position + len(piece)] = piece
        position += len(piece)


def _native(array: Numbers) -> Numbers:
    if array.dtype.isnative:
        return array
    return array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))


def _check_order(array: RawArray, field: str) -> None:
    if array.fortran and array.nbytes > _MOST_FORTRAN:
        raise TooLargeError(
            field,
            found=f"{array.nbytes >> 20} MiB in Fortran order, which cannot be read row by row",
            accepted="C order (save numpy.ascontiguousarray(array))",
        )


def _ended(field: str) -> InputError:
    return InputError(field, found="a file that ends too early", accepted="a complete file")
