"""`.npy`: one array of scores; the labels are in an npy file of their own, if they are named."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from recalib.errors import InputError, UnsupportedError
from recalib.files.base import DataFile, Layout, Rows
from recalib.files.raw_arrays import (
    RawArray,
    Readable,
    StreamView,
    check_dtype,
    check_row_shape,
    check_shape,
    open_file,
    read_exactly,
    read_rows,
    size_of,
    zip_rows,
)

_MAGIC = b"\x93NUMPY"
#: The limit of NumPy; the header of a plain array takes 118 bytes.
_MAX_HEADER_BYTES = 10_000
#: Python 3.11's parser, which NumPy uses for headers, sometimes fails in two threads at once:
#: "AST constructor recursion depth mismatch" (github.com/python/cpython/issues/106905).
_PARSER = threading.Lock()


class NpyFile(DataFile):
    """A NumPy array file of version 1 or 2, (N, K); labels are in a file of their own."""

    name: ClassVar[str] = "npy"
    media_types: ClassVar[tuple[str, ...]] = ("application/x-npy",)
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)

    def _open(self) -> Layout:
        self._labels: tuple[BinaryIO, RawArray, int] | None = None
        for field, name in (
            ("scores", self._selection.scores),
            ("weights", self._selection.weights),
        ):
            if name is not None:
                accepted = "none: an npy file has one array without a name"
                raise InputError(field, found=f"{name!s:.60}", accepted=accepted)
        self._scores, self._start = read_header(StreamView(self._stream, 0), self._declared)
        rows, classes, dtype = check_shape(self._scores, self._declared)
        check_length(self._scores, size_of(self._stream) - self._start, self._declared)
        if self._selection.label is not None:
            stream = open_file(Path(self._selection.label), "label")
            array, start = read_header(StreamView(stream, 0), "labels")
            self._labels = (stream, array, start)
            check_row_shape(array, self._labels_shape(rows, classes))
            check_length(array, size_of(stream) - start, "labels")
        return Layout(rows, classes, dtype, has_labels=self._labels is not None)

    def close(self) -> None:
        super().close()
        if self._labels is not None:
            self._labels[0].close()

    def _read(self, step: int) -> Iterator[Rows]:
        window = StreamView(self._stream, self._start)
        scores = read_rows(window, self._scores, step, self._declared)
        if self._labels is None:
            return zip_rows(scores)
        stream, array, start = self._labels
        return zip_rows(scores, read_rows(StreamView(stream, start), array, step, "labels"))


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
    return RawArray(dtype, tuple(int(length) for length in shape), fortran)
