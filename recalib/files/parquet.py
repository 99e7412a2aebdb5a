"""`.parquet`: a column of lists `logits`, or one column a class, and a column `labels`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, ClassVar

from recalib.errors import InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers
from recalib.files.footer import Chunks, survey
from recalib.files.pages import MOST_GROUP, Pages
from recalib.files.raw_arrays import Window, read_exactly, size_of
from recalib.files.tables import Columns
from recalib.lazy_import import LazyModule

__all__ = ["ParquetFile", "open_table"]

pq = LazyModule("pyarrow.parquet")

#: The footer is parsed whole. A thousand columns in a hundred groups take 10 MB.
_MOST_FOOTER = 16 << 20
#: Arrow keeps a batch several times over while decoding it (values, levels, pages).
_BATCH = 2 << 20
#: What a row group of somebody's own table may be, in times of the whole file.
_MOST_TIMES = 16
#: Bytes that a value takes, by its type; texts take an offset besides their own.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_OFFSET = 4


class ParquetFile(DataFile):
    """A Parquet file, read page by page; columns other than ours are neither read nor checked."""

    name: ClassVar[str] = "parquet"

    def _open(self) -> Layout:
        self._file, chunks = _opened(self._stream)
        self._columns = Columns(self._file.schema_arrow, self._declared)
        schema = self._file.schema
        itemsizes = _itemsizes([schema.column(i).path for i in range(len(schema))], self._columns)
        Pages(self._stream, size_of(self._stream), itemsizes, len(schema)).check(chunks)
        if self._columns.classes is None and self._file.metadata.num_rows:
            next(self._read(1))
        return Layout(
            self._file.metadata.num_rows,
            self._columns.classes or 0,
            self._columns.dtype,
            has_labels=self._columns.names.labels is not None,
        )

    def _read(self, step: int) -> Iterator[tuple[Numbers, Numbers | None]]:
        row = 0
        most = max(1, _BATCH // (self._columns.dtype.itemsize * (self._columns.classes or 1)))
        batches = self._file.iter_batches(
            batch_size=min(step, most), columns=self._columns.wanted, use_threads=False
        )
        for batch in batches:
            yield self._columns.arrays(batch, row)
            row += batch.num_rows


def open_table(stream: BinaryIO, columns: Collection[str] | None = None) -> Any:
    """Return pyarrow's reader of a table of any columns, once what it claims has been checked.

    As strictly as uploads, but that a row group may be as large as 16 times the file: it is
    somebody's own, on a disk of theirs. A text that a dictionary has once, and many rows refer to,
    is counted once.

    Parameters
    ----------
    columns: those that will be read, all by default; names that the file has not are for the caller
        to find.

    Raises
    ------
    InputError: a file that is damaged; inside `readable`, whatever Arrow says of it as well.
    TooLargeError: a file that claims far more than it is.
    """
    file, chunks = _opened(stream)
    schema = file.schema
    leaves = [schema.column(i) for i in range(len(schema))]
    itemsizes = {
        index: _width(leaf)
        for index, leaf in enumerate(leaves)
        if columns is None or leaf.path in columns or leaf.path.partition(".")[0] in columns
    }
    size = size_of(stream)
    most = max(MOST_GROUP, _MOST_TIMES * size)
    Pages(stream, size, itemsizes, len(leaves), most).check(chunks)
    return file


def _opened(stream: BinaryIO) -> tuple[Any, Chunks]:
    """Return Arrow's reader, and the column chunks of the footer, which has been checked."""
    chunks = survey(_read_footer(stream))
    file = pq.ParquetFile(
        stream,
        pre_buffer=False,  # which would fetch whole row groups ahead
        buffer_size=1 << 16,  # one for each column
        page_checksum_verification=True,
    )
    return file, chunks


def _read_footer(stream: BinaryIO) -> bytes:
    size = size_of(stream)
    tail = read_exactly(Window(stream, max(0, size - 8)), 8, "data")
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - 8:
        raise InputError(
            "data", found="no Parquet footer at the end", accepted="a complete parquet file"
        )
    if length > _MOST_FOOTER:
        raise TooLargeError(
            "data",
            found=f"a footer of {length >> 20} MiB",
            accepted=f"at most {_MOST_FOOTER >> 20} MiB",
        )
    return read_exactly(Window(stream, size - 8 - length), length, "data")


def _width(leaf: Any) -> int:
    kind = leaf.physical_type
    if kind == "FIXED_LEN_BYTE_ARRAY":
        return max(1, int(leaf.length))
    return _WIDTHS.get(kind, _OFFSET)


def _itemsizes(paths: list[str], columns: Columns) -> dict[int, int]:
    """Return the leaves that will be read: a list's is called `logits.list.element`."""
    wanted = set(columns.wanted)
    # Labels may be wider than logits, and Parquet keeps nothing narrower than 4 bytes.
    itemsize = 8 if columns.dtype.itemsize == 8 else 4
    return {
        index: 8 if path == columns.names.labels else itemsize
        for index, path in enumerate(paths)
        if path in wanted or path.partition(".")[0] in wanted
    }
