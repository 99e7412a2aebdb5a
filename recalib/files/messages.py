"""Check the sizes that Arrow messages claim, before Arrow allocates them.

An Arrow stream is a sequence of messages: 0xFFFFFFFF, the length of the metadata, the metadata (a
flatbuffer), a body. Arrow allocates the sizes in the metadata: the body and, if buffers are
compressed, the size that each buffer states. A flatbuffer may refer to one field any number of
times: a schema of 3 MB cost 1.6 GB.

The server decodes Arrow bodies of calibrate requests in its own process, so these checks cannot
rely on the reader process. pyarrow has no interface to metadata before it allocates; the few fields
needed are read here, and `struct` checks every offset.

Source: the Arrow columnar format, "Serialization and IPC"; `format/Message.fbs`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.files.raw_arrays import StreamView, read_exactly

#: A batch is read at once. By default, pyarrow writes a Feather file of a thousand float32 classes
#: in batches of 65,536 rows, 250 MiB.
MAX_BATCH_BYTES = 256 << 20
#: A schema takes about 150 bytes a column.
_MAX_METADATA_BYTES = 16 << 20

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TIMESTAMP, _UNION = 10, 14
#: Minimum bytes of a field with its entry in a vector, and of a pair of strings.
_FIELD, _PAIR = 20, 16
_COMPRESSED_LENGTH = struct.Struct("<q")


class Messages:
    """An iterator over the messages of a stream that checks each and does not read bodies.

    Parameters
    ----------
    position: offset of the first message, the schema.
    size: of the stream, in bytes.
    """

    def __init__(self, stream: BinaryIO, position: int, size: int) -> None:
        self._stream = stream
        self.position = position
        self._size = size
        self._dictionaries = 0

    def pass_schema(self) -> None:
        """Move past the first message.

        Raises
        ------
        InputError: the message is not a schema; or as `pass_batch`.
        """
        if self._next() != _SCHEMA:
            raise InputError("data", found="no schema first", accepted="an Arrow stream or file")

    def pass_batch(self) -> bool:
        """Move past the next record batch; return False if the stream ends instead.

        Raises
        ------
        InputError: the file is truncated (there is no end-of-stream marker), or a message is
            damaged.
        TooLargeError: a batch, or all dictionaries together, exceed 256 MiB, compressed or not.
            Arrow keeps dictionaries in memory.
        """
        while (kind := self._next()) is not None:
            if kind == _BATCH:
                return True
        return False

    def _next(self) -> int | None:
        window = StreamView(self._stream, self.position)
        mark, length = struct.unpack("<Ii", read_exactly(window, 8, "data"))
        if mark != 0xFFFFFFFF:
            raise UnsupportedError(
                "data",
                found="no Arrow message",
                accepted="an Arrow stream or file, written by Arrow 0.15 or later",
            )
        if length == 0:
            return None
        if not 0 < length <= _MAX_METADATA_BYTES:
            raise TooLargeError(
                "data",
                found=f"metadata of {length} bytes",
                accepted=f"at most {_MAX_METADATA_BYTES}",
            )
        return self._check(read_exactly(window, length, "data"), self.position + 8 + length)

    def _check(self, metadata: bytes, body: int) -> int:
        """Check a message, move past it, and return its kind."""
        message = _Table(metadata, _at("<I", metadata, 0))
        kind = message.number("<B", 1)
        length = message.number("<q", 3)
        if not 0 <= length <= self._size - body:
            raise InputError("data", found="a file that ends too early", accepted="a complete file")
        _check_size(length)
        if kind in (_DICTIONARY, _BATCH):
            batch = message.table(2)
            if kind == _DICTIONARY:
                batch = batch.table(1)
            unpacked = self._decompressed_bytes(batch, body) if batch.has(3) else length
            _check_size(unpacked)
            if kind == _DICTIONARY:
                self._dictionaries += unpacked
                _check_size(self._dictionaries)
        elif kind == _SCHEMA:
            _check_schema(message.table(2), len(metadata))
        self.position = body + length
        return kind

    def _decompressed_bytes(self, batch: _Table, body: int) -> int:
        """Sum the sizes that the buffers of a compressed batch state; −1 means "not compressed"."""
        total = 0
        for offset, length in batch.pairs(2):
            if length == 0:
                continue
            window = StreamView(self._stream, body + max(0, offset))
            (claimed,) = _COMPRESSED_LENGTH.unpack(read_exactly(window, 8, "data"))
            total += max(claimed, length)
        return total


def _check_schema(schema: _Table, size: int) -> None:
    """Raise `TooLargeError` if a schema refers to more than the `size` bytes of its message.

    No writer refers to a field or a string twice, so all items of a valid schema add up to less
    than its size. Items that share bytes count once for each reference.
    """
    available = size - _pairs_cost(schema, 2, size)
    pending = schema.tables(1, available // _FIELD)
    while pending and available >= 0:
        field = pending.pop()
        available -= _FIELD + field.length(0) + _type_cost(field)
        available -= _pairs_cost(field, 6, available)
        pending += field.tables(5, max(0, available) // _FIELD)
    if available < 0 or len(pending) * _FIELD > available:
        raise _repetition_error()


def _type_cost(field: _Table) -> int:
    """Return the bytes of a type's parameters: a time zone, or the type ids of a union."""
    kind = field.number("<B", 2)
    if kind not in (_TIMESTAMP, _UNION) or not field.has(3):
        return 0
    return field.table(3).length(1) * (4 if kind == _UNION else 1)


def _pairs_cost(owner: _Table, slot: int, available: int) -> int:
    """Return the bytes of the key-value metadata in a slot."""
    pairs = owner.tables(slot, max(0, available) // _PAIR)
    return sum(_PAIR + pair.length(0) + pair.length(1) for pair in pairs)


def _repetition_error() -> TooLargeError:
    return TooLargeError(
        "data",
        found="a schema that refers to more fields than it contains",
        accepted="a schema that refers to each field once",
    )


class _Table:
    """A table of a flatbuffer; a table of offsets locates its fields."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._offsets = position - _at("<i", data, position)
        self._end = _at("<H", data, self._offsets)

    def has(self, slot: int) -> bool:
        return self._field(slot) != 0

    def number(self, code: str, slot: int) -> int:
        """Return a number, 0 if it is absent."""
        return _at(code, self._data, self._field(slot)) if self.has(slot) else 0

    def table(self, slot: int) -> _Table:
        return _Table(self._data, self._target(slot))

    def length(self, slot: int) -> int:
        """Return the length of a string or a vector, 0 if it is absent."""
        return _at("<I", self._data, self._target(slot)) if self.has(slot) else 0

    def tables(self, slot: int, max_count: int) -> list[_Table]:
        """Return a vector of tables; `TooLargeError` for more than `max_count`."""
        if not self.has(slot):
            return []
        start = self._target(slot)
        count = _at("<I", self._data, start)
        if count > max_count:
            raise _repetition_error()
        offsets = range(start + 4, start + 4 + 4 * count, 4)
        return [_Table(self._data, offset + _at("<I", self._data, offset)) for offset in offsets]

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two int64."""
        start = self._target(slot)
        count = _at("<I", self._data, start)
        content = self._data[start + 4 : start + 4 + 16 * count]
        return list(struct.iter_unpack("<qq", content))

    def _target(self, slot: int) -> int:
        field = self._field(slot)
        return field + _at("<I", self._data, field)

    def _field(self, slot: int) -> int:
        entry = 4 + 2 * slot
        if entry >= self._end:
            return 0
        offset = _at("<H", self._data, self._offsets + entry)
        return self._position + offset if offset else 0


def _at(code: str, data: bytes, position: int) -> int:
    if position < 0:  # it would count from the end
        raise ValueError("an offset before the message")
    return struct.unpack_from(code, data, position)[0]


def _check_size(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise TooLargeError(
            "data",
            found=f"a record batch of {size >> 20} MiB",
            accepted=f"batches of at most {MAX_BATCH_BYTES >> 20} MiB "
            "(write_table(table, max_chunksize=ROWS))",
        )
