"""Write probabilities (N, K) in pieces, in constant memory and without seeking."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

ProbabilityFormat = Literal["npz", "parquet"]
PROBABILITY_FORMATS: tuple[ProbabilityFormat, ...] = ("parquet", "npz")

_NAME = "probabilities"
#: The earliest time of a ZIP archive: equal rows give equal files.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_probabilities(
    write: Callable[[bytes], object],
    format: ProbabilityFormat,
    pieces: Iterable[NDArray[Any]],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> None:
    """Write a file with the array or the column of lists `probabilities`.

    The same pieces give the same bytes. In Parquet each piece is a row group.

    Parameters
    ----------
    write: appends bytes to the file.
    pieces: arrays (n, K), whose rows are N in all.
    shape: (N, K).
    dtype: of the pieces, float32 or float64.
    """
    sink = _Sink(write)
    if format == "parquet":
        _write_parquet(sink, pieces, dtype)
    else:
        _write_npz(sink, pieces, shape, dtype)


def _write_parquet(sink: _Sink, pieces: Iterable[NDArray[Any]], dtype: np.dtype[Any]) -> None:
    schema = pa.schema([(_NAME, pa.list_(pa.from_numpy_dtype(dtype)))])
    # Nearly all values differ, so a dictionary of them would only take space.
    options = {"use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for piece in pieces:
            rows, classes = piece.shape
            offsets = np.arange(rows + 1, dtype=np.int32) * classes
            column = pa.ListArray.from_arrays(offsets, pa.array(piece.ravel()))
            writer.write_table(pa.Table.from_arrays([column], schema=schema), row_group_size=rows)


def _write_npz(
    sink: _Sink, pieces: Iterable[NDArray[Any]], shape: tuple[int, int], dtype: np.dtype[Any]
) -> None:
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    with (
        zipfile.ZipFile(sink, "w") as archive,
        archive.open(zipfile.ZipInfo(f"{_NAME}.npy", _TIME), "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, header)
        for piece in pieces:
            member.write(np.ascontiguousarray(piece, dtype.newbyteorder("<")).data)


class _Sink(io.RawIOBase):
    """A file that can only be appended to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        content = bytes(data)
        self._write(content)
        self._position += len(content)
        return len(content)

    def tell(self) -> int:
        return self._position
