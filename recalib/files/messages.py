"""What Arrow messages claim, read before Arrow itself believes it.

An Arrow stream is a row of messages: 0xFFFFFFFF, the length of the metadata, the metadata (a
flatbuffer), a body. Arrow allocates what the metadata says, a body and, where buffers are
compressed, whatever size each buffer names; so both are summed here first. A schema costs what it
names, and a flatbuffer may name one thing any number of times: 3 MB of metadata cost 1.6 GB. The
few fields that this takes are read by hand, with every offset checked by struct.

Source: the Arrow columnar format, "Serialization and IPC"; `format/Message.fbs`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from recalib.errors import InputError, TooLargeError, UnsupportedError
from recalib.files.raw_arrays import Window, read_exactly

__all__ = ["Messages"]

#: A batch is read whole. 256 MiB lets pass what pyarrow's feather writes by default for a
#: thousand float32 classes (65,536 rows).
MAX_BATCH_BYTES = 256 << 20
#: A schema takes some 150 bytes a column.
_MOST_METADATA = 16 << 20

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TIMESTAMP, _UNION = 10, 14
#: Bytes of a field's table and its entry in a vector, and of a pair of texts, at the least.
_FIELD, _PAIR = 20, 16
_COMPRESSED_LENGTH = struct.Struct("<q")


class Messages:
    """Walks the messages of a stream, checking each, without reading bodies.

    Parameters
    ----------
    position: of the first message, the schema.
    size: of the whole stream.
    """

    def __init__(self, stream: BinaryIO, position: int, size: int) -> None:
        self._stream = stream
        self.position = position
        self._size = size
        self._dictionaries = 0

    def pass_schema(self) -> None:
        """Move behind the first message.

        Raises
        ------
        InputError: it is no schema, or as `pass_batch`.
        """
        if self._next() != _SCHEMA:
            raise InputError("data", found="no schema first", accepted="an Arrow stream or file")

    def pass_batch(self) -> bool:
        """Move behind the next record batch; False where the stream ends instead.

        Raises
        ------
        InputError: the file ends without an end-of-stream mark, which every writer leaves and
            only a truncated file lacks; or a message that is damaged.
        TooLargeError: a batch of over 256 MiB, as it lies there or decompressed; or dictionaries
            that are so large together, since Arrow keeps them.
        """
        while (kind := self._next()) is not None:
            if kind == _BATCH:
                return True
        return False

    def _next(self) -> int | None:
        window = Window(self._stream, self.position)
        mark, length = struct.unpack("<Ii", read_exactly(window, 8, "data"))
        if mark != 0xFFFFFFFF:
            raise UnsupportedError(
                "data",
                found="no Arrow message where one should be",
                accepted="an Arrow stream or file, written by Arrow 0.15 or later",
            )
        if length == 0:
            return None
        if not 0 < length <= _MOST_METADATA:
            raise TooLargeError(
                "data", found=f"metadata of {length} bytes", accepted=f"at most {_MOST_METADATA}"
            )
        return self._check(read_exactly(window, length, "data"), self.position + 8 + length)

    def _check(self, metadata: bytes, body: int) -> int:
        """Return the kind of a message after checking it, and move behind it."""
        message = _Table(metadata, _at("<I", metadata, 0))
        kind = message.number("<B", 1)
        length = message.number("<q", 3)
        if not 0 <= length <= self._size - body:
            raise InputError("data", found="a file that ends too early", accepted="a complete file")
        _refuse_large(length)
        if kind in (_DICTIONARY, _BATCH):
            batch = message.table(2)
            if kind == _DICTIONARY:
                batch = batch.table(1)
            unpacked = self._decompressed(batch, body) if batch.has(3) else length
            _refuse_large(unpacked)
            if kind == _DICTIONARY:
                self._dictionaries += unpacked
                _refuse_large(self._dictionaries)
        elif kind == _SCHEMA:
            _check_schema(message.table(2), len(metadata))
        self.position = body + length
        return kind

    def _decompressed(self, batch: _Table, body: int) -> int:
        """Sum what the buffers of a compressed batch claim; −1 says "not compressed"."""
        total = 0
        for offset, length in batch.pairs(2):
            if length == 0:
                continue
            window = Window(self._stream, body + max(0, offset))
            (claimed,) = _COMPRESSED_LENGTH.unpack(read_exactly(window, 8, "data"))
            total += max(claimed, length)
        return total


def _check_schema(schema: _Table, size: int) -> None:
    """Refuse a schema that names more than the `size` bytes of its message can hold.

    No writer names a field or a text twice, so that what an honest schema names adds up to less
    than its own length. What lies on one place, or overlaps, is counted as often as it is named.

    Raises
    ------
    TooLargeError: it does.
    """
    left = size - _pairs_cost(schema, 2, size)
    waiting = schema.tables(1, left // _FIELD)
    while waiting and left >= 0:
        field = waiting.pop()
        left -= _FIELD + field.length(0) + _type_cost(field)
        left -= _pairs_cost(field, 6, left)
        waiting += field.tables(5, max(0, left) // _FIELD)
    if left < 0 or len(waiting) * _FIELD > left:
        raise _repeated()


def _type_cost(field: _Table) -> int:
    """Bytes of what a type holds besides itself: a time zone, or the numbers of a union."""
    kind = field.number("<B", 2)
    if kind not in (_TIMESTAMP, _UNION) or not field.has(3):
        return 0
    return field.table(3).length(1) * (4 if kind == _UNION else 1)


def _pairs_cost(owner: _Table, slot: int, left: int) -> int:
    """Bytes of the metadata in a slot, pairs of texts."""
    pairs = owner.tables(slot, max(0, left) // _PAIR)
    return sum(_PAIR + pair.length(0) + pair.length(1) for pair in pairs)


def _repeated() -> TooLargeError:
    return TooLargeError(
        "data",
        found="a schema that names things more often than it holds them",
        accepted="each once, as every writer does",
    )


class _Table:
    """A table of a flatbuffer: its fields are found through a table of offsets."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._offsets = position - _at("<i", data, position)
        self._end = _at("<H", data, self._offsets)

    def has(self, slot: int) -> bool:
        return self._field(slot) != 0

    def number(self, code: str, slot: int) -> int:
        """Return a number, 0 where it was left out."""
        return _at(code, self._data, self._field(slot)) if self.has(slot) else 0

    def table(self, slot: int) -> _Table:
        return _Table(self._data, self._target(slot))

    def length(self, slot: int) -> int:
        """Return the length of a text or a vector, 0 where it was left out."""
        return _at("<I", self._data, self._target(slot)) if self.has(slot) else 0

    def tables(self, slot: int, most: int) -> list[_Table]:
        """Return a vector of tables; `TooLargeError` for more than `most`."""
        if not self.has(slot):
            return []
        start = self._target(slot)
        count = _at("<I", self._data, start)
        if count > most:
            raise _repeated()
        places = range(start + 4, start + 4 + 4 * count, 4)
        return [_Table(self._data, place + _at("<I", self._data, place)) for place in places]

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
    if position < 0:  # which would count from the end
        raise ValueError("an offset before the message")
    value: int = struct.unpack_from(code, data, position)[0]
    return value


def _refuse_large(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise TooLargeError(
            "data",
            found=f"a record batch of {size >> 20} MiB",
            accepted=f"batches of at most {MAX_BATCH_BYTES >> 20} MiB "
            "(write_table(table, max_chunksize=ROWS))",
        )
