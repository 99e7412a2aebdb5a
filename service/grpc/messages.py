"""Between messages of gRPC and the forms that handlers take and return."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from pydantic import BaseModel

from recalib.errors import InputError
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.schemas.field_types import MAX_VERSION
from service.schemas.monitoring_settings import MonitoringSettings

__all__ = [
    "checked_version",
    "enum_value",
    "page_limit",
    "settings_of",
    "struct_to_dict",
    "to_message",
]

M = TypeVar("M", bound=Message)

_USUAL_LIMIT, _MOST_ITEMS = 100, 1000


def to_message(kind: type[M], form: BaseModel) -> M:
    """Return the message that says what a form says; what is None there is not set.

    Names are the same in both. A value of an enumeration is `queued` in a form and
    `JOB_STATE_QUEUED` in a message.
    """
    return ParseDict(_named(form.model_dump(mode="json"), kind.DESCRIPTOR), kind())


def enum_value(field: str, enumeration: EnumDescriptor, number: int) -> str:
    """Return a value of an enumeration as forms have it; `InputError` for one that is none."""
    value = enumeration.values_by_number.get(number)
    if value is None:
        accepted = ", ".join(one.name for one in enumeration.values)
        raise InputError(field, found=str(number), accepted=accepted)
    return value.name.removeprefix(_prefix(enumeration)).lower()


def struct_to_dict(struct: Struct) -> dict[str, Any]:
    """Return what JSON has for a Struct; all its numbers are doubles, so 15.0 becomes 15."""
    found: dict[str, Any] = _whole(MessageToDict(struct))
    return found


def page_limit(limit: int) -> int:
    """Return how many items a page has; 0 is the usual number."""
    if not 0 <= limit <= _MOST_ITEMS:
        raise InputError("limit", found=str(limit), accepted=f"1 to {_MOST_ITEMS}")
    return limit or _USUAL_LIMIT


def checked_version(version: int) -> int:
    """Return a version that can be one."""
    if not 1 <= version <= MAX_VERSION:
        raise InputError("version", found=str(version), accepted=f"1 to {MAX_VERSION}")
    return version


def settings_of(message: pb.MonitoringSettings) -> MonitoringSettings:
    """Convert a message; fields that are not set have their defaults."""
    numbers = {
        field.name: value
        for field, value in message.ListFields()
        if field.name not in ("refit", "promote", "segments")
    }
    policies = {
        "refit": enum_value("settings.refit", pb.Refit.DESCRIPTOR, message.refit),
        "promote": enum_value("settings.promote", pb.PromoteCandidate.DESCRIPTOR, message.promote),
    }
    fields = {**numbers, **policies, "segments": list(message.segments)}
    return MonitoringSettings.model_validate(fields)


def _named(form: dict[str, Any], kind: Any) -> dict[str, Any]:
    found = {}
    for name, value in form.items():
        if value is None:
            continue
        field = kind.fields_by_name[name]
        if field.enum_type is not None:
            value = _prefix(field.enum_type) + value.upper()
        elif isinstance(value, list) and field.message_type is not None:
            value = [_named(one, field.message_type) for one in value]
        elif isinstance(value, dict) and _is_own(field.message_type):
            value = _named(value, field.message_type)
        found[name] = value
    return found


def _is_own(kind: Any) -> bool:
    """Return whether a message is one of ours, with fields: no map, and no Struct."""
    own = kind is not None and kind.file.package.startswith("recalib.")
    return own and not kind.GetOptions().map_entry


def _prefix(enumeration: EnumDescriptor) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enumeration.name).upper() + "_"


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
