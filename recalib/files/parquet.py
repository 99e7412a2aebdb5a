"""`.parquet`: a column of lists `logits`, or one column a class, and a column `labels`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from recalib.errors import InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers
from recalib.files.footer import survey
from recalib.files.lazily import Lazily
from recalib.files.pages import Pages
from recalib.files.raw import Window, read_exactly, size_of
from recalib.files.tables import Columns

__all__ = ["ParquetFile"]

pq = Lazily("pyarrow.parquet")

#: The footer is parsed whole. A thousand columns in a hundred groups take 10 MB.
_MOST_FOOTER = 16 << 20
#: Arrow keeps a batch several times over while decoding it (values, levels, pages).
_BATCH = 2 << 20


class ParquetFile(DataFile):
    """A Parquet file, read page by page; columns other than ours are neither read nor checked."""

    name: ClassVar[str] = "parquet"

    def _open(self) -> Layout:
        chunks = survey(self._read_footer())
        self._file = pq.ParquetFile(
            self._stream,
            pre_buffer=False,  # which would fetch whole row groups ahead
            buffer_size=1 << 16,  # one for each column
            page_checksum_verification=True,
        )
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

    def _read_footer(self) -> bytes:
        size = size_of(self._stream)
        tail = read_exactly(Window(self._stream, max(0, size - 8)), 8, "data")
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
        return read_exactly(Window(self._stream, size - 8 - length), length, "data")


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
