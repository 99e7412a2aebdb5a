"""Conversion between gRPC messages and the pydantic schemas of handlers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from pydantic import BaseModel

from recalib.errors import InputError, TooLargeError

M = TypeVar("M", bound=Message)


def to_message(message_type: type[M], schema: BaseModel) -> M:
    """Return a schema as a message; a field that is None is not set.

    Field names are the same in both. An enumeration value is `queued` in a schema and
    `JOB_STATE_QUEUED` in a message.
    """
    return ParseDict(
        _to_protobuf_names(schema.model_dump(mode="json"), message_type.DESCRIPTOR), message_type()
    )


def enum_value(field: str, enumeration: EnumDescriptor, number: int) -> str:
    """Return an enumeration value as in schemas; raise `InputError` for an unknown number."""
    name = enum_name(enumeration, number)
    if isinstance(name, int):
        accepted = ", ".join(item.name for item in enumeration.values)
        raise InputError(field, found=str(number), accepted=accepted)
    return name


def enum_name(enumeration: EnumDescriptor, number: int) -> str | int:
    """Return an enumeration value as in schemas; an unknown number as it is."""
    value = enumeration.values_by_number.get(number)
    if value is None:
        return number
    return value.name.removeprefix(_prefix(enumeration)).lower()


def struct_to_dict(struct: Struct, field: str) -> dict[str, Any]:
    """Return the Struct of a field as a dictionary; integral doubles become int.

    Raises
    ------
    InputError: a number is not finite.
    """
    try:
        values: dict[str, Any] = _with_integers(MessageToDict(struct))
    except ValueError:
        found = "a number that is infinite or NaN"
        raise InputError(field, found=found, accepted="finite numbers") from None
    return values


async def open_upload(
    requests: AsyncIterator[Any], max_bytes: int
) -> tuple[Any, AsyncIterator[bytes]]:
    """Return the header of an upload, and its bytes, of which there are at most `max_bytes`.

    Parameters
    ----------
    requests: messages with a oneof `part`: `header` or `chunk`.
    """
    first = await anext(requests, None)
    if first is None or first.WhichOneof("part") != "header":
        found = "no header in the first message"
        raise InputError("header", found=found, accepted="a header, then chunks")
    return first.header, _chunks(requests, max_bytes)


async def _chunks(requests: AsyncIterator[Any], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise InputError("chunk", found="another header, or nothing", accepted="bytes")
        size += len(request.chunk)
        if size > max_bytes:
            found, accepted = f"over {max_bytes} bytes", f"at most {max_bytes} bytes"
            raise TooLargeError("body", found=found, accepted=accepted)
        yield request.chunk


def _to_protobuf_names(fields: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    """Return the fields of a message without None, with the message's enumeration names."""
    converted = {}
    for name, value in fields.items():
        if value is None:
            continue
        field = descriptor.fields_by_name[name]
        if field.enum_type is not None:
            value = _prefix(field.enum_type) + value.upper()
        elif isinstance(value, list) and field.message_type is not None:
            value = [_to_protobuf_names(item, field.message_type) for item in value]
        elif isinstance(value, dict) and _is_own(field.message_type):
            value = _to_protobuf_names(value, field.message_type)
        converted[name] = value
    return converted


def _is_own(descriptor: Any) -> bool:
    """Return whether a message type is defined by Recalib; a map or a Struct is not."""
    is_ours = descriptor is not None and descriptor.file.package.startswith("recalib.")
    return is_ours and not descriptor.GetOptions().map_entry


def _prefix(enumeration: EnumDescriptor) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enumeration.name).upper() + "_"


def _with_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
