"""What a Parquet file's footer makes Arrow allocate, counted before Arrow reads it.

Arrow makes an object of each column of each row group, and of each column's name, before anything
can be asked of it: a footer of thirty bytes that claimed 900,000 columns cost 614 MB. An Arrow
schema that a writer has put beside Parquet's own is read as well, with all that
`recalib.files.messages` knows of such schemas.

Source: apache/parquet-format, `parquet.thrift`, whose field numbers these are.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

from recalib.errors import InputError, TooLargeError
from recalib.files.limits import refuse_columns
from recalib.files.messages import Messages
from recalib.files.thrift import BINARY, LIST, STRUCT, Cursor

__all__ = ["check_footer"]

#: What a column of a row group takes in a footer, at the least: its type, its encodings, its path,
#: its codec, three sizes and an offset. Arrow's object of it takes 700.
_CHUNK = 24
_ARROW_SCHEMA = b"ARROW:schema"


def check_footer(footer: bytes) -> None:
    """Check how many columns a footer (a FileMetaData) has, and the Arrow schema in it.

    Raises
    ------
    InputError: an Arrow schema that cannot be read.
    TooLargeError: more columns than are read, or more than the footer has room for.
    """
    cursor = Cursor(footer)
    columns = chunks = 0
    for number, kind in cursor.fields():
        if number == 2 and kind == LIST:
            for _ in cursor.items():
                cursor.skip(STRUCT)
                columns += 1
                refuse_columns(columns)
        elif number == 4 and kind == LIST:
            for _ in cursor.items():
                for _ in _columns_of_group(cursor):
                    chunks += 1
                    _refuse_chunks(chunks, len(footer))
        elif number == 5 and kind == LIST:
            for _ in cursor.items():
                _check_pair(cursor)
        else:
            cursor.skip(kind)


def _columns_of_group(cursor: Cursor) -> Iterator[None]:
    """Pass over a row group, yielding at each of its columns."""
    for number, kind in cursor.fields():
        if number == 1 and kind == LIST:
            for _ in cursor.items():
                cursor.skip(STRUCT)
                yield
        else:
            cursor.skip(kind)


def _refuse_chunks(count: int, size: int) -> None:
    if count * _CHUNK > size:
        raise TooLargeError(
            "data",
            found=f"{count} columns or more in a footer of {size} bytes",
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
