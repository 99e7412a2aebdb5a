"""Resources of `recalib.contract` and messages of gRPC have the same fields."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from google.protobuf.descriptor import FieldDescriptor

from recalib import contract
from recalib.contract.base import Items, Page, Resource
from recalib.contract.datasets import Dataset
from recalib.contract.models import Deletion
from recalib.core.field_types import Documented
from recalib.metrics import METRICS
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_name

#: Messages with another name; None: gRPC has its own health service.
_NAMES = {"HistoryPage": "MonitoringHistory", "TrafficAnswer": "AddTrafficResponse", "Ready": None}
#: The settings of a model are objects in the contract, so that a client reads those of any server.
_SETTINGS = {("Model", "monitoring"), ("Model", "retention")}
_KINDS = {str: "text", int: "integer", float: "number", bool: "truth", datetime: "Timestamp"}
_PROTO_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_INT32: "integer",
    FieldDescriptor.CPPTYPE_INT64: "integer",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_BOOL: "truth",
    FieldDescriptor.CPPTYPE_ENUM: "text",
}


def resources(kind: type[Resource] = Resource) -> Iterator[type[Resource]]:
    for module in pkgutil.iter_modules(contract.__path__):
        importlib.import_module(f"recalib.contract.{module.name}")
    for below in kind.__subclasses__():
        is_own = below.__module__.startswith("recalib.contract") and "[" not in below.__name__
        if is_own and below not in (Items, Page):
            yield below
        yield from resources(below)


def kind_of(type_: Any) -> str:
    origin, members = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return kind_of(members[0])
    if origin in (Union, UnionType):
        (member,) = (member for member in members if member is not NoneType)
        return kind_of(member)
    if origin in (list, tuple):
        return f"list of {kind_of(members[0])}"
    if origin is dict:
        return "Struct" if members[1] is Any else f"map of {kind_of(members[1])}"
    return _KINDS.get(type_) or str(type_.__name__)


def kind_of_field(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return f"map of {kind_of_field(message.fields_by_name['value'])}"
    kind = _PROTO_KINDS[field.cpp_type] if message is None else message.name
    return f"list of {kind}" if field.is_repeated else kind


def enumerated(type_: Any) -> list[str] | None:
    """Return the documented values of a text."""
    parts = [
        type_,
        *get_args(type_),
        *(part for item in get_args(type_) for part in get_args(item)),
    ]
    found = (part.keywords.get("enum") for part in parts if isinstance(part, Documented))
    return next(found, None)


@pytest.mark.parametrize("resource", dict.fromkeys(resources()), ids=lambda kind: kind.__name__)
def test_messages_have_the_fields_of_resources(resource: type[Resource]) -> None:
    name = _NAMES.get(resource.__name__, resource.__name__)
    if name is None:
        return
    fields = dict(pb.DESCRIPTOR.message_types_by_name[name].fields_by_name)
    expected = {field: info.annotation for field, info in resource.model_fields.items()}
    assert set(fields) == set(expected)
    for field, kind in expected.items():
        if (resource.__name__, field) in _SETTINGS:
            continue
        assert kind_of_field(fields[field]) == kind_of(kind), field
        enumeration = fields[field].enum_type
        if enumeration is not None:
            values = {enum_name(enumeration, number) for number in enumeration.values_by_number}
            metadata = resource.model_fields[field].metadata
            documented = enumerated(Annotated[kind, *metadata] if metadata else kind)
            assert set(documented or ()) == values - {"unspecified"}, field


def test_units_of_metrics_are_documented() -> None:
    """The description lists each metric of an upload that is no fraction, by its unit."""
    text = Dataset.model_fields["metrics"].description or ""
    nats, others = re.findall(r"fractions; (.*) in nats; (.*) without a unit", text)[0]
    for unit, listed in (("nats", nats), ("score", others)):
        names = [
            n for n, metric in METRICS.items() if metric.unit == unit and not metric.on_request
        ]
        assert re.findall(r"`(\w+)`", listed) == names


@pytest.mark.parametrize("seconds", [0.0, 1.5e9, 1_790_000_000.123, 9e10])
def test_numbers_are_seconds(seconds: float) -> None:
    """Also those of the far future, which pydantic by default reads as milliseconds."""
    deletion = Deletion.model_validate({"deleted_at": seconds, "erased_after": seconds})
    assert deletion.deleted_at == datetime.fromtimestamp(seconds, UTC)
    assert Deletion.model_validate_json(deletion.model_dump_json()) == deletion
