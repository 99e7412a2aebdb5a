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
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.schemas.field_types import MAX_VERSION
from service.schemas.monitoring_settings import MonitoringSettings

M = TypeVar("M", bound=Message)

_DEFAULT_LIMIT, _MAX_LIMIT = 100, 1000


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
    value = enumeration.values_by_number.get(number)
    if value is None:
        accepted = ", ".join(item.name for item in enumeration.values)
        raise InputError(field, found=str(number), accepted=accepted)
    return value.name.removeprefix(_prefix(enumeration)).lower()


def details_of(request: Any) -> dict[str, Any]:
    """Return the description and the tags of an update, those that are set."""
    fields: dict[str, Any] = {}
    if request.HasField("description"):
        fields["description"] = request.description
    if request.HasField("tags"):
        fields["tags"] = list(request.tags.items)
    return fields


def struct_to_dict(struct: Struct) -> dict[str, Any]:
    """Return a Struct as a dictionary; its numbers are doubles, and integral ones become int."""
    values: dict[str, Any] = _with_integers(MessageToDict(struct))
    return values


def page_limit(limit: int) -> int:
    """Return the number of items of a page; 0 means the default."""
    if not 0 <= limit <= _MAX_LIMIT:
        raise InputError("limit", found=str(limit), accepted=f"1 to {_MAX_LIMIT}")
    return limit or _DEFAULT_LIMIT


def checked_version(version: int) -> int:
    """Return a version number; raise `InputError` if it is out of range."""
    if not 1 <= version <= MAX_VERSION:
        raise InputError("version", found=str(version), accepted=f"1 to {MAX_VERSION}")
    return version


def settings_of(message: pb.MonitoringSettings) -> MonitoringSettings:
    """Convert a message; fields that are not set have their defaults."""
    numbers = {
        field.name: value
        for field, value in message.ListFields()
        if field.name not in ("refit", "promote", "segments", "classes")
    }
    policies = {
        "refit": enum_value("settings.refit", pb.Refit.DESCRIPTOR, message.refit),
        "promote": enum_value("settings.promote", pb.PromoteCandidate.DESCRIPTOR, message.promote),
    }
    lists = {"segments": list(message.segments), "classes": list(message.classes)}
    fields = {**numbers, **policies, **lists}
    return MonitoringSettings.model_validate(fields)


async def upload_chunks(requests: AsyncIterator[Any], limit: int) -> AsyncIterator[bytes]:
    """Yield the bytes of an upload of at most `limit` of them, after its header.

    Parameters
    ----------
    requests: messages with a oneof `part`: `header` or `chunk`.
    """
    size = 0
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise InputError("chunk", found="another header, or nothing", accepted="bytes")
        size += len(request.chunk)
        if size > limit:
            raise TooLargeError(
                "body", found=f"over {limit} bytes", accepted=f"at most {limit} bytes"
            )
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
