"""`.parquet`: a column of lists `logits`, or one column a class, and a column `labels`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow.parquet as pq

from recalib.errors import InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers
from recalib.files.raw import Window, read_exactly, size_of
from recalib.files.tables import Columns

__all__ = ["ParquetFile"]

#: Columns of one row group are read side by side, a page and a dictionary of each, and a writer
#: may put all of a column into one page: reading costs up to twice the group (measured, a
#: thousand columns: 73 MiB for 28 MiB, 469 MiB for 284 MiB). 256 MiB lets pass what pyarrow
#: writes by default for ImageNet's validation set as lists (50,000 x 1000 float32, one group),
#: whose single column is read page by page, in 12 MiB.
_MOST_GROUP = 256 << 20
#: The footer is parsed whole. A thousand columns in a hundred groups take 10 MB.
_MOST_FOOTER = 32 << 20
#: Arrow keeps a batch several times over while decoding it (values, levels, pages).
_BATCH = 2 << 20


class ParquetFile(DataFile):
    """A Parquet file, read page by page; columns other than ours are neither read nor checked."""

    name: ClassVar[str] = "parquet"

    def _open(self) -> Layout:
        self._check_footer()
        self._file = pq.ParquetFile(
            self._stream,
            pre_buffer=False,  # which would fetch whole row groups ahead
            buffer_size=1 << 16,  # one for each column
            page_checksum_verification=True,
        )
        self._columns = Columns(self._file.schema_arrow, self._declared)
        self._check_groups()
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

    def _check_footer(self) -> None:
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

    def _check_groups(self) -> None:
        # Not summed over our columns alone: pyarrow's `.column(i)` lets a C++ exception about
        # damaged statistics end the process (found by fuzzing, pyarrow 26).
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).total_byte_size
            if size > _MOST_GROUP:
                raise TooLargeError(
                    "data",
                    found=f"a row group of {size >> 20} MiB uncompressed, all columns together",
                    accepted=f"row groups of at most {_MOST_GROUP >> 20} MiB "
                    "(write_table(..., row_group_size=ROWS))",
                )
