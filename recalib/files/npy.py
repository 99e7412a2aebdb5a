"""`.npy`: one array of scores; the labels are in an npy file of their own, if they are named."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.files.base import Layout, Numbers
from recalib.files.raw_arrays import (
    ArrayFile,
    RawArray,
    Readable,
    StreamView,
    check_dtype,
    open_file,
    read_exactly,
    read_rows,
    size_of,
)

_MAGIC = b"\x93NUMPY"
#: The limit of NumPy; the header of a plain array takes 118 bytes.
_MAX_HEADER_BYTES = 10_000
#: A column-major array cannot be read in chunks of rows; its size is limited instead.
_MAX_FORTRAN_BYTES = 64 << 20
#: Python 3.11's parser, which NumPy uses for headers, sometimes fails in two threads at once:
#: "AST constructor recursion depth mismatch" (github.com/python/cpython/issues/106905).
_PARSER = threading.Lock()


class NpyFile(ArrayFile):
    """A NumPy array file of version 1 or 2, (N, K); labels are in a file of their own."""

    name: ClassVar[str] = "npy"
    media_types: ClassVar[tuple[str, ...]] = ("application/x-npy",)
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)

    def _open(self) -> Layout:
        self._streams: dict[str, BinaryIO] = {self._declared: self._stream}
        for field, name in (
            ("scores", self._selection.scores),
            ("weights", self._selection.weights),
        ):
            if name is not None:
                accepted = "none: an npy file has one array without a name"
                raise InputError(field, found=f"{name!s:.60}", accepted=accepted)
        return super()._open()

    def _names(self) -> list[str]:
        return [self._declared, *filter(None, (self._selection.label,))]

    def close(self) -> None:
        super().close()
        if "labels" in self._streams:
            self._streams["labels"].close()

    def _array(self, name: str, field: str) -> RawArray:
        if field == "labels":
            self._streams[field] = open_file(Path(name), "label")
        stream = self._streams[field]
        array, start = read_header(StreamView(stream, 0), field)
        check_length(array, size_of(stream) - start, field)
        return array

    def _rows(self, name: str, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
        view = StreamView(self._streams[field], 0)
        read_header(view, field)
        return read_rows(view, array, step, field)


def read_header(stream: Readable, field: str) -> tuple[RawArray, int]:
    """Return the array that an npy header describes, and its length; leave the stream at the data.

    Raises
    ------
    InputError: not an npy header, a header longer than NumPy accepts, or a dtype without numbers.
    UnsupportedError: a format version for structured arrays.
    """
    start = read_exactly(stream, 8, field)
    if start[:6] != _MAGIC:
        raise InputError(field, found=f"bytes {start[:6]!r}", accepted="a NumPy array (.npy)")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0)):
        raise UnsupportedError(
            field, found=f"npy format version {version[0]}.{version[1]}", accepted="1.0 or 2.0"
        )
    # NumPy would read as many bytes as this length says.
    width = 2 if version == (1, 0) else 4
    prefix = read_exactly(stream, width, field)
    length = int.from_bytes(prefix, "little")
    if length > _MAX_HEADER_BYTES:
        raise InputError(
            field, found=f"a header of {length} bytes", accepted=f"at most {_MAX_HEADER_BYTES}"
        )
    header = prefix + read_exactly(stream, length, field)
    return _parse(header, version, field), 8 + width + length


def check_length(array: RawArray, available: int, field: str) -> None:
    """Raise `InputError` unless the file holds exactly what the header claims."""
    if available != array.nbytes:
        raise InputError(
            field,
            found=f"{available} bytes where the header claims {array} of {array.nbytes} bytes",
            accepted="a complete file",
        )


def _parse(header: bytes, version: tuple[int, int], field: str) -> RawArray:
    parse = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    try:
        with _PARSER:
            shape, fortran, dtype = parse(io.BytesIO(header))
    except Exception as error:  # ast.literal_eval of hostile text raises five different classes
        raise InputError(
            field, found="an npy header that does not parse", accepted="a header that numpy wrote"
        ) from error
    check_dtype(dtype, field)
    array = RawArray(dtype, tuple(int(length) for length in shape), fortran)
    _check_order(array, field)
    return array


def _check_order(array: RawArray, field: str) -> None:
    if array.fortran and array.nbytes > _MAX_FORTRAN_BYTES:
        raise TooLargeError(
            field,
            found=f"{array.nbytes >> 20} MiB in Fortran order, which cannot be read row by row",
            accepted="C order (save numpy.ascontiguousarray(array))",
        )
