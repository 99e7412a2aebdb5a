"""What the pages of a Parquet file claim, read before Arrow believes it.

Arrow allocates what a page's header says, up to 2 GB, before it looks at the page: one changed
byte in a file of 1.6 kB cost 1.9 GB (found by fuzzing). The sizes in the footer may lie about
the pages, so the headers themselves are walked; bodies are not read.
Column chunks may not share them, or a small file would be hours of work.

Neither can pyarrow's own view of the footer be used: its `.column(i)` lets a C++ exception about
damaged statistics end the process (found by fuzzing, pyarrow 26).

Source: apache/parquet-format, `parquet.thrift`, whose field numbers these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from recalib.errors import InputError, TooLargeError
from recalib.files.footer import Chunks
from recalib.files.limits import refuse_unpacked
from recalib.files.raw_arrays import Window
from recalib.files.thrift import I32, STRUCT, Cursor

__all__ = ["MOST_GROUP", "Pages"]

#: Columns of one row group are read side by side, a page and a dictionary of each, a writer may
#: put all of a column into one page, and run lengths may put all of a group into one row: so
#: the group's size, encoded or decoded, is what reading it can cost, about twice (measured, a
#: thousand columns: 73 MiB for 28 MiB). 256 MiB lets pass what pyarrow writes by default for
#: ImageNet's validation set as lists (50,000 x 1000 float32, one group), which costs 12 MiB.
MOST_GROUP = 256 << 20
#: A header of a page of numbers takes some 50 bytes, with statistics.
_HEADER = 512
_LONGEST_HEADER = 64 << 10
#: Pages without values are legal, and nobody writes many.
_MOST_EMPTY = 1000

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
#: The field of a page header that holds the number of values, by the page's type.
_VALUES = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}


@dataclass(slots=True)
class _Cost:
    """What reading one row group takes: bytes of values, and of pages with their dictionaries."""

    decoded: int = 0
    encoded: int = 0


class Pages:
    """Walks the pages of some columns, row group by row group.

    Parameters
    ----------
    size: of the whole stream.
    itemsizes: bytes a value, by the number of the column (a leaf of the schema).
    columns: how many there are.
    most_group: bytes that a row group may be, encoded or decoded.
    """

    def __init__(
        self,
        stream: BinaryIO,
        size: int,
        itemsizes: dict[int, int],
        columns: int,
        most_group: int = MOST_GROUP,
    ) -> None:
        self._stream = stream
        self._size = size
        self._itemsizes = itemsizes
        self._columns = columns
        self._most_group = most_group
        #: Bytes of all pages as the footer has them, and of all values.
        self._claimed = self._decoded = 0

    def check(self, chunks: Chunks) -> None:
        """Check each row group.

        Raises
        ------
        InputError: a page beyond the file's end, values that do not add up, or column chunks that
            overlap.
        TooLargeError: a row group of over `most_group`, or a file that unpacks to far more than it
            is.
        """
        for group in range(chunks.groups):
            cost, column = _Cost(), 0
            for chunk in chunks.of(group):
                if column in self._itemsizes:
                    self._walk(*chunk, self._itemsizes[column], cost)
                column += 1
            self._decoded += cost.decoded
            refuse_unpacked(self._decoded, self._size)
            if column != self._columns:
                raise _damaged(f"{column} columns in a row group", f"{self._columns}")

    def _walk(
        self, expected: int, size: int, position: int, dictionary: int, itemsize: int, cost: _Cost
    ) -> None:
        """Add up a column chunk; as `Chunks.of` yields it."""
        if min(expected, size, position) < 0:
            raise _damaged("a column without its place", "an undamaged file")
        if 0 < dictionary < position:
            position = dictionary
        end = position + size
        self._claimed += size
        if self._claimed > self._size:
            raise _damaged("pages that are in several columns", "each page in one")
        _refuse_large(_Cost(cost.decoded + expected * itemsize, cost.encoded), self._most_group)
        values = empty = 0
        while values < expected:
            if not 0 <= position < end <= self._size:
                raise _damaged(f"{values} values in a column", f"{expected}, as the footer says")
            header, start = self._header(position)
            position = start + header.compressed
            if position > self._size:
                raise _damaged("a page beyond the end", "a complete file")
            decoded = header.values * itemsize
            if header.is_dictionary:
                cost.encoded += max(header.uncompressed, header.compressed, decoded)
            else:
                cost.encoded += max(header.uncompressed, header.compressed)
                cost.decoded += decoded
                values += header.values
            empty += header.values == 0
            if empty > _MOST_EMPTY:
                raise _damaged("pages without values", "pages with values")
            _refuse_large(cost, self._most_group)

    def _header(self, position: int) -> tuple[_PageHeader, int]:
        """Return the header at `position`, and where its page begins."""
        length = _HEADER
        while True:
            data = Window(self._stream, position).read(length)
            cursor = Cursor(data)
            try:
                return _page_header(cursor), position + cursor.position
            except IndexError:
                if len(data) < length or length >= _LONGEST_HEADER:
                    raise
                length *= 8


@dataclass(frozen=True, slots=True)
class _PageHeader:
    is_dictionary: bool
    uncompressed: int
    compressed: int
    values: int


def _page_header(cursor: Cursor) -> _PageHeader:
    numbers: dict[int, int] = {}
    values: dict[int, int] = {}
    for number, kind in cursor.fields():
        if kind == STRUCT:
            values[number] = cursor.integers(I32).get(1, 0)
        elif kind == I32:
            numbers[number] = cursor.sized(I32)
        else:
            cursor.skip(kind)
    kind = numbers[1]
    header = _PageHeader(
        kind == _DICTIONARY, numbers[2], numbers[3], values.get(_VALUES.get(kind, 0), 0)
    )
    if min(header.uncompressed, header.compressed, header.values) < 0:
        raise _damaged("a page of negative size", "an undamaged file")
    return header


def _refuse_large(cost: _Cost, most: int) -> None:
    if (size := max(cost.decoded, cost.encoded)) > most:
        raise TooLargeError(
            "data",
            found=f"a row group of {size >> 20} MiB or more",
            accepted=f"row groups of at most {most >> 20} MiB "
            "(write_table(..., row_group_size=ROWS))",
        )


def _damaged(found: str, accepted: str) -> InputError:
    return InputError("data", found=found, accepted=accepted)
