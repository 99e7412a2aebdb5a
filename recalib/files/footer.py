"""What a Parquet file's footer says, and makes Arrow allocate: counted before Arrow reads it.

Arrow makes an object of each column of each row group, and of each column's name, before anything
can be asked of it: a footer of thirty bytes that claimed 900,000 columns cost 614 MB. An Arrow
schema that a writer has put beside Parquet's own is read as well, with all that
`recalib.files.messages` knows of such schemas.

Source: apache/parquet-format, `parquet.thrift`, whose field numbers these are.
"""

from __future__ import annotations

import base64
import io
from array import array
from collections.abc import Iterator

from recalib.errors import InputError, TooLargeError
from recalib.files.limits import refuse_columns
from recalib.files.messages import Messages
from recalib.files.thrift import BINARY, I64, LIST, STRUCT, Cursor

__all__ = ["Chunks", "survey"]

#: What a column of a row group takes in a footer, at the least: its type, its encodings, its path,
#: its codec, three sizes and an offset. Arrow's object of it takes 700.
_CHUNK = 24
_ARROW_SCHEMA = b"ARROW:schema"


class Chunks:
    """The column chunks of a file, row group by row group, in 32 bytes each."""

    def __init__(self) -> None:
        self._numbers = array("q")
        #: Chunks up to the end of each group.
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // 4

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return len(self._ends)

    def add(self, metadata: dict[int, int]) -> None:
        """Add a chunk of the group that has not ended, from the I64 fields of a ColumnMetaData."""
        self._numbers.extend(metadata.get(number, -1) for number in (5, 7, 9, 11))

    def end_group(self) -> None:
        self._ends.append(len(self))

    def of(self, group: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield each chunk of a group: its values, its bytes, and where data and dictionary are.

        What the footer leaves out is −1.
        """
        first = self._ends[group - 1] if group else 0
        for place in range(4 * first, 4 * self._ends[group], 4):
            values, size, data, dictionary = self._numbers[place : place + 4]
            yield values, size, data, dictionary


def survey(footer: bytes) -> Chunks:
    """Check how many columns a footer (a FileMetaData) has, and the Arrow schema in it.

    Raises
    ------
    InputError: an Arrow schema that cannot be read.
    TooLargeError: more columns than are read, or more than the footer has room for.
    """
    cursor = Cursor(footer)
    columns, chunks = 0, Chunks()
    for number, kind in cursor.fields():
        if number == 2 and kind == LIST:
            for _ in cursor.items():
                cursor.skip(STRUCT)
                columns += 1
                refuse_columns(columns)
        elif number == 4 and kind == LIST:
            for _ in cursor.items():
                for metadata in _columns_of_group(cursor):
                    chunks.add(metadata)
                    _refuse_chunks(len(chunks), len(footer))
                chunks.end_group()
                _refuse_chunks(chunks.groups, len(footer))
        elif number == 5 and kind == LIST:
            for _ in cursor.items():
                _check_pair(cursor)
        else:
            cursor.skip(kind)
    return chunks


def _columns_of_group(cursor: Cursor) -> Iterator[dict[int, int]]:
    """Pass over a row group, yielding the I64 fields of each of its columns' metadata."""
    for number, kind in cursor.fields():
        if number == 1 and kind == LIST:
            for _ in cursor.items():
                yield _metadata(cursor)
        else:
            cursor.skip(kind)


def _metadata(cursor: Cursor) -> dict[int, int]:
    metadata: dict[int, int] = {}
    for number, kind in cursor.fields():
        if number == 3 and kind == STRUCT:
            metadata |= cursor.integers(I64)
        else:
            cursor.skip(kind)
    return metadata


def _refuse_chunks(count: int, size: int) -> None:
    if count * _CHUNK > size:
        raise TooLargeError(
            "data",
            found=f"{count} columns or row groups, or more, in a footer of {size} bytes",
            accepted="an undamaged file",
        )


def _check_pair(cursor: Cursor) -> None:
    texts: dict[int, bytes] = {}
    for number, kind in cursor.fields():
        if kind == BINARY:
            texts[number] = cursor.binary()
        else:
            cursor.skip(kind)
    if texts.get(1) != _ARROW_SCHEMA or 2 not in texts:
        return
    try:
        message = base64.b64decode(texts[2], validate=True)
    except ValueError:
        raise InputError(
            "data", found="an Arrow schema that is not base64", accepted="an undamaged file"
        ) from None
    Messages(io.BytesIO(message), 0, len(message)).pass_schema()
