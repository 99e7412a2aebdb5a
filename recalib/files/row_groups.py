"""Checks of a Parquet file's metadata, before any row is read.

pyarrow does not check what the metadata points to: from a file of 2,000 rows whose three row groups
share their pages it reads 6,000. It keeps a page of each column of a row group in memory.

pyarrow ends the process if the size statistics in a damaged footer are inconsistent ("terminate
called after throwing an instance of 'parquet::ParquetException'", pyarrow 26). The server therefore
reads uploads in a child process, `service.reader_process`.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from recalib.errors import InputError, TooLargeError
from recalib.files.limits import check_unpacked_size

#: Reading a row group costs up to about twice its size, encoded or decoded: all columns are read
#: side by side, and one page may hold a whole column. pyarrow writes ImageNet's validation set
#: (50,000 x 1000 float32, as lists) as one group of 191 MiB.
MAX_GROUP_BYTES = 256 << 20


def check_row_groups(
    metadata: Any,
    size: int,
    value_sizes: dict[int, int],
    max_group_bytes: int = MAX_GROUP_BYTES,
) -> None:
    """Check the column chunks that will be read.

    Parameters
    ----------
    metadata: a `pyarrow.parquet.FileMetaData`.
    size: of the file, in bytes.
    value_sizes: bytes of a decoded value, by the index of each column (a leaf of the schema) that
        will be read.
    max_group_bytes: limit for a row group, encoded and decoded.

    Raises
    ------
    InputError: a column chunk lies outside the file or overlaps another one, or the counts of rows
        contradict each other.
    TooLargeError: a row group exceeds `max_group_bytes`, or the file unpacks to far more than its
        size.
    """
    ranges = array("q")
    rows = total_decoded = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        decoded = encoded = 0
        for column, value_size in value_sizes.items():
            chunk = group.column(column)
            if chunk.num_values == group.num_rows == 0:
                continue
            start, end = _byte_range(chunk)
            if not 0 < start <= end <= size or chunk.num_values < group.num_rows:
                raise _damage_error("a column chunk outside the file, or with too few values")
            ranges.extend((start, end))
            decoded += chunk.num_values * value_size
            encoded += max(chunk.total_uncompressed_size, end - start)
        _check_group_size(max(decoded, encoded), max_group_bytes)
        rows += group.num_rows
        total_decoded += decoded
        check_unpacked_size(total_decoded, size)
    _check_overlap(ranges)
    if rows != metadata.num_rows:
        raise _damage_error(f"{rows} rows in row groups where the file has {metadata.num_rows}")


def _byte_range(chunk: Any) -> tuple[int, int]:
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset or 0
    if 0 < dictionary < start:
        start = dictionary
    return start, start + chunk.total_compressed_size


def _check_overlap(ranges: array[int]) -> None:
    pairs = np.frombuffer(ranges, np.int64).reshape(-1, 2)
    starts, ends = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    if (starts[1:] < ends[:-1]).any():
        raise _damage_error("column chunks that overlap")


def _check_group_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLargeError(
            "data",
            found=f"a row group of {size >> 20} MiB or more",
            accepted=f"row groups of at most {limit >> 20} MiB "
            "(write_table(..., row_group_size=ROWS))",
        )


def _damage_error(found: str) -> InputError:
    return InputError("data", found=found, accepted="a complete, undamaged parquet file")
