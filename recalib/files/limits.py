"""What a file may cost beyond its own bytes: nothing here is reached by data that anybody keeps."""

from __future__ import annotations

from recalib.errors import TooLargeError

__all__ = ["MOST_COLUMNS", "refuse_columns", "refuse_unpacked"]

#: Each column of a CSV or Parquet file costs Arrow some 4 kB. ImageNet-21k has 21,841 classes;
#: more than this as one column a class are kept as lists, which have no such limit.
MOST_COLUMNS = 32_768
#: Deflate cannot pack more than 1,032 bytes into one. Run lengths and zstd can, so that without a
#: limit a megabyte is hours of work. What unpacks to less than _LITTLE may be as regular as may be.
_MOST_RATIO = 1032
_LITTLE = 256 << 20


def refuse_columns(count: int) -> None:
    """Raise `TooLargeError` where a table has more columns than can be read."""
    if count > MOST_COLUMNS:
        raise TooLargeError(
            "data",
            found=f"{count} columns",
            accepted=f"at most {MOST_COLUMNS}; or one column of lists",
        )


def refuse_unpacked(unpacked: int, size: int) -> None:
    """Raise `TooLargeError` where a file of `size` bytes becomes far more bytes of numbers."""
    if unpacked > max(_LITTLE, _MOST_RATIO * size):
        raise TooLargeError(
            "data",
            found=f"{size} bytes that unpack to {unpacked >> 20} MiB or more",
            accepted=f"at most {_MOST_RATIO} times as many, or {_LITTLE >> 20} MiB",
        )
