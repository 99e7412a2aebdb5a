"""A limit on the fields of a message, checked before the message is parsed.

protobuf parses a message with one call, during which nothing else runs, and keeps up to 80 bytes of
memory for each field. 16 MiB hold 8 million empty fields: 700 MiB and half a second. A message with
large arrays has few fields.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]
from google.protobuf.message import DecodeError

from recalib.errors import TooLargeError

#: Smaller messages are not checked: parsing one takes at most 50 ms.
_SMALL_BYTES = 2**20
#: Those of 10,000 labels.
_MAX_FIELDS = 50_000
#: Numbers of variable length in one field: each byte can be a number, which takes 8 bytes.
_MAX_PACKED_BYTES = 65_536
_FIXED_TYPES = frozenset(
    {
        FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED32,
        FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_SFIXED32,
        FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_STRING,
    }
)  # fmt: skip
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def check_fields(content: bytes, descriptor: Descriptor) -> None:
    """Raise `TooLargeError` if a message of over 1 MiB has too many fields, at any depth.

    Malformed bytes are left to the parser.
    """
    if len(content) <= _SMALL_BYTES:
        return
    messages, count = [(descriptor, 0, len(content))], 0
    while messages:
        kind, at, end = messages.pop()
        while at < end:
            count += 1
            if count > _MAX_FIELDS:
                raise _too_large(f"over {_MAX_FIELDS} fields", f"at most {_MAX_FIELDS}")
            try:
                tag, at = _DecodeVarint(content, at)
                size, at = _size(content, at, tag & 7)
            except (DecodeError, IndexError, ValueError):
                return
            field = kind.fields_by_number.get(tag >> 3)
            if tag & 7 == _LENGTH and field is not None:
                if field.message_type is not None:
                    messages.append((field.message_type, at, min(at + size, end)))
                elif size > _MAX_PACKED_BYTES and field.type not in _FIXED_TYPES:
                    found = f"{size} bytes of {field.name}"
                    raise _too_large(found, f"at most {_MAX_PACKED_BYTES}")
            at += size


def _size(content: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return the size of a field's value and where it begins."""
    if wire_type == _LENGTH:
        size, at = _DecodeVarint(content, at)
        return size, at
    if wire_type == _VARINT:
        _, end = _DecodeVarint(content, at)
        return end - at, at
    if wire_type in (_FIXED32, _FIXED64):
        return (4 if wire_type == _FIXED32 else 8), at
    raise ValueError(wire_type)


def _too_large(found: str, accepted: str) -> TooLargeError:
    return TooLargeError("message", found=found, accepted=f"{accepted}; numbers in one raw field")
