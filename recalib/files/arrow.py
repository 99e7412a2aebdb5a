"""`.arrow`, `.arrows`, `.feather`: Arrow's stream and file formats, with the columns of Parquet.

An Arrow file is a stream between two magic strings, with an index at the end. Reading all rows in
order does not need the index, so both formats are read as streams. The first bytes distinguish
them, not the suffix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

from recalib.core.lazy_import import LazyModule
from recalib.errors import EmptyError, InputError, UnsupportedError
from recalib.files.base import DataFile, Layout, Rows
from recalib.files.column_names import column_names
from recalib.files.limits import check_unpacked_size
from recalib.files.messages import Messages
from recalib.files.raw_arrays import StreamView, size_of
from recalib.files.tables import Columns

pa = LazyModule("pyarrow")

_FILE_MARK = b"ARROW1"
_FEATHER_1 = b"FEA1"


class ArrowFile(DataFile):
    """An Arrow IPC stream or file, one record batch in memory at a time."""

    name: ClassVar[str] = "arrow"
    media_types: ClassVar[tuple[str, ...]] = (
        "application/vnd.apache.arrow.stream",
        "application/vnd.apache.arrow.file",
    )
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".feather")

    def _open(self) -> Layout:
        self._size = size_of(self._stream)
        self._start = _find_start(self._stream, self._size)
        schema = self._reader()[0].schema
        names = column_names(schema.names, self._declared, self._selection)
        self._columns = Columns(schema, names, self._declared, self._task)
        if self._columns.classes is None:
            self._find_classes()
        return self._columns.layout()

    def _read(self, step: int) -> Iterator[Rows]:
        row = unpacked = 0
        for batch in _batches(self._stream, *self._reader()):
            batch.validate()
            # Columns may share bytes: a batch may be larger than its message.
            unpacked += batch.num_rows * self._columns.row_bytes
            check_unpacked_size(unpacked, self._size)
            for first in range(0, batch.num_rows, step):
                part = batch.slice(first, step)
                yield self._columns.arrays(part, row)
                row += part.num_rows

    def _reader(self) -> tuple[Any, Messages]:
        return _open_reader(self._stream, self._start, self._size)

    def _find_classes(self) -> None:
        # A column of lists: the first row determines K.
        if next(self._read(1), None) is None:
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")


def open_batches(stream: BinaryIO) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the record batches of a table of any columns, each checked when read.

    Call it, and read the batches, inside `translate_errors`, which translates Arrow's errors.

    Raises
    ------
    InputError, TooLargeError: as `Messages`.
    """
    size = size_of(stream)
    reader, messages = _open_reader(stream, _find_start(stream, size), size)
    return reader.schema, _fully_valid(_batches(stream, reader, messages))


def _fully_valid(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        batch.validate(full=True)  # lists and texts refer to other buffers by offsets
        yield batch


def _open_reader(stream: BinaryIO, start: int, size: int) -> tuple[Any, Messages]:
    """Return Arrow's reader and the checker of messages, both after the schema."""
    messages = Messages(stream, start, size)
    messages.pass_schema()
    stream.seek(start)
    return pa.ipc.open_stream(stream), messages


def _batches(stream: BinaryIO, reader: Any, messages: Messages) -> Iterator[Any]:
    start = messages.position
    while messages.pass_batch():
        # `messages` has moved the stream to check the next batch; Arrow reads on from `start`.
        stream.seek(start)
        yield reader.read_next_batch()
        start = messages.position


def _find_start(stream: BinaryIO, size: int) -> int:
    """Return the offset of the first message."""
    head = StreamView(stream, 0).read(8)
    if head.startswith(_FEATHER_1):
        raise UnsupportedError(
            "data", found="a Feather file of version 1", accepted="version 2 (Arrow)"
        )
    if not head.startswith(_FILE_MARK):
        return 0
    if StreamView(stream, max(0, size - 6)).read(6) != _FILE_MARK:
        raise InputError(
            "data", found="an Arrow file without its end", accepted="a complete arrow file"
        )
    return 8
