"""Write the answers to N rows of K classes in pieces, in constant memory and without seeking."""

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

#: The earliest time of a ZIP archive: equal rows give equal files.
_TIME = (1980, 1, 1, 0, 0, 0)


def answer_dtype(
    classes: int, number: np.dtype[Any], *, sets: bool, accepted: bool
) -> np.dtype[Any]:
    """Return the type of the answer to a row.

    It has `probabilities` (K,), and on request the truth values `sets` (K,) and `accepted`.
    """
    truth = np.dtype(np.bool_)
    fields: list[Any] = [("probabilities", number, (classes,))]
    fields += [("sets", truth, (classes,))] * sets
    return np.dtype(fields + [("accepted", truth)] * accepted)


def write_probabilities(
    write: Callable[[bytes], object],
    format: ProbabilityFormat,
    pieces: Callable[[], Iterable[NDArray[Any]]],
    rows: int,
    dtype: np.dtype[Any],
) -> None:
    """Write a file with an array or a column for each field of the answers.

    Those of a field (K,) are (N, K), or lists.

    The same pieces give the same bytes. In Parquet each piece is a row group.

    Parameters
    ----------
    write: appends bytes to the file.
    pieces: returns arrays (n,) of answers, whose rows are N in all; called for each array of .npz.
    rows: N.
    dtype: of the pieces, by `answer_dtype`.
    """
    sink = _Sink(write)
    if format == "parquet":
        _write_parquet(sink, pieces(), dtype)
    else:
        _write_npz(sink, pieces, rows, dtype)


def _write_parquet(sink: _Sink, pieces: Iterable[NDArray[Any]], dtype: np.dtype[Any]) -> None:
    names = dtype.names or ()
    types = {name: pa.from_numpy_dtype(dtype[name].base) for name in names}
    schema = pa.schema(
        [(name, pa.list_(kind) if dtype[name].shape else kind) for name, kind in types.items()]
    )
    # Nearly all values differ, so a dictionary of them would only take space.
    options = {"use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for piece in pieces:
            rows, classes = piece["probabilities"].shape
            offsets = np.arange(rows + 1, dtype=np.int32) * classes
            columns = [pa.array(piece[name].ravel()) for name in names]
            columns = [
                pa.ListArray.from_arrays(offsets, column) if dtype[name].shape else column
                for name, column in zip(names, columns, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=rows)


def _write_npz(
    sink: _Sink, pieces: Callable[[], Iterable[NDArray[Any]]], rows: int, dtype: np.dtype[Any]
) -> None:
    with zipfile.ZipFile(sink, "w") as archive:
        for name in dtype.names or ():
            kind, shape = dtype[name].base.newbyteorder("<"), (rows, *dtype[name].shape)
            header = {"descr": kind.str, "fortran_order": False, "shape": shape}
            place = zipfile.ZipInfo(f"{name}.npy", _TIME)
            with archive.open(place, "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for piece in pieces():
                    member.write(np.ascontiguousarray(piece[name], kind).data)


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
