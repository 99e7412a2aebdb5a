"""Reads Thrift's compact protocol, in which Parquet writes its footer and page headers.

Only as much as finding a few integers takes: the rest is skipped, nothing is collected, so that
a footer of any size costs its bytes and no more. Where Arrow's reader would see another value than
ours (a number that it cuts to 16 or 32 bits, a field of another type, which it passes over), the
data is refused or the field is passed over as well: what is checked must be what is read.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BINARY", "I32", "I64", "LIST", "STRUCT", "Cursor"]

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET = 1, 2, 3, 7, 10
#: Parquet nests six deep.
_DEEPEST = 16


class Cursor:
    """A position in encoded bytes; reading past their end raises IndexError.

    `fields` and `items` leave it to the caller to read or to `skip` each value that they
    announce before asking for the next.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct."""
        number = 0
        while (head := self._byte()) & 0x0F:  # whatever stands beside the type that ends a struct
            before, delta = number, head >> 4
            number = before + delta if delta else self.integer()
            # Every writer writes them in order; one that came twice could be two things.
            if not before < number < 1 << 15:
                raise ValueError(f"a field with the number {number} after {before}")
            yield number, head & 0x0F

    def items(self) -> Iterator[int]:
        """Yield the type of each element of a list."""
        head = self._byte()
        count = head >> 4
        if count == 15:
            count = self._varint()
        # Each takes a byte or more; who believes a count allocates it.
        if count > len(self._data) - self.position:
            raise IndexError("a list beyond the end of the data")
        for _ in range(count):
            yield head & 0x0F

    def integer(self) -> int:
        """Read an i16, i32 or i64."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def integers(self, wanted: int) -> dict[int, int]:
        """Read a struct: its integers of one type, by the number of their field."""
        found = {}
        for number, kind in self.fields():
            if kind == wanted:
                found[number] = self.sized(kind)
            else:
                self.skip(kind)
        return found

    def sized(self, kind: int) -> int:
        """Read an integer that fits into its type, I32 or I64."""
        value = self.integer()
        limit = 1 << (31 if kind == I32 else 63)
        if not -limit <= value < limit:
            raise ValueError(f"{value}, which has more bits than its type")
        return value

    def binary(self) -> bytes:
        """Read bytes, or a text."""
        size = self._varint()
        start = self.position
        self._forward(size)
        return self._data[start : self.position]

    def skip(self, kind: int, depth: int = 0, *, element: bool = False) -> None:
        """Pass over a value; a bool is part of its field's head, but a byte in a list."""
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if kind in (_TRUE, _FALSE):
            self._forward(int(element))
        elif kind == _BYTE:
            self._forward(1)
        elif _BYTE < kind <= I64:
            self._varint()
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == BINARY:
            self._forward(self._varint())
        elif kind in (LIST, _SET):
            for inner in self.items():
                self.skip(inner, depth + 1, element=True)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        else:
            # Maps (11) occur nowhere in Parquet, and 0 is no type.
            raise ValueError(f"Thrift type {kind}")

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("an integer of more than ten bytes")

    def _forward(self, size: int) -> None:
        self.position += size
        if self.position > len(self._data):
            raise IndexError("the end of the data")
