"""Limits on what a file costs beyond its own size. Real data stays far below them."""

from __future__ import annotations

from recalib.errors import TooLargeError

#: Arrow needs about 4 kB for each column of a CSV or Parquet file. ImageNet-21k has 21,841 classes;
#: a column of lists has no such limit.
MAX_COLUMNS = 32_768
#: Deflate packs at most 1,032 bytes into one. Run lengths and zstd pack more: without a limit, a
#: file of a megabyte takes hours to read.
_MAX_RATIO = 1032
#: The ratio is not limited for data that is smaller than this once it is unpacked.
_SMALL_BYTES = 256 << 20


def check_column_count(count: int) -> None:
    """Raise `TooLargeError` if a table has more than `MAX_COLUMNS` columns."""
    if count > MAX_COLUMNS:
        raise TooLargeError(
            "data",
            found=f"{count} columns",
            accepted=f"at most {MAX_COLUMNS}; or one column of lists",
        )


def check_unpacked_size(unpacked: int, size: int) -> None:
    """Raise `TooLargeError` if a file of `size` bytes unpacks to far more bytes of numbers."""
    if unpacked > max(_SMALL_BYTES, _MAX_RATIO * size):
        raise TooLargeError(
            "data",
            found=f"{size} bytes that unpack to {unpacked >> 20} MiB or more",
            accepted=f"at most {_MAX_RATIO} times as many, or {_SMALL_BYTES >> 20} MiB",
        )
