"""What REST refuses, gRPC refuses with the same field: each field with values out of its range."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.rpc import method_name
from tests.service.conftest import Service
from tests.service.stubs import SERVICES, Rpc, refused, violations

#: RPCs whose messages are no requests of REST in another encoding: uploads, streams, matrices.
_OTHER_FORM = frozenset(
    {
        "add_labels", "add_observations", "calibrate", "calibrate_stream", "create_batch",
        "create_replay", "create_training_run", "stream_events", "upload_dataset",
    }
)  # fmt: skip
_METHODS = [
    method
    for service in SERVICES.values()
    for method in service.methods
    if method_name(method.name) not in _OTHER_FORM
]
_BAD: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_INT32: [-1, 2**31 - 1],
    FieldDescriptor.TYPE_INT64: [-1, 2**40],
    FieldDescriptor.TYPE_DOUBLE: [1e300, math.nan],
    FieldDescriptor.TYPE_STRING: ["a\0b", "x" * 5_000],
    FieldDescriptor.TYPE_ENUM: [99],
    FieldDescriptor.TYPE_BYTES: [b"x"],
}
_CODES = {
    200: {grpc.StatusCode.OK},
    404: {grpc.StatusCode.NOT_FOUND},
    409: {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ALREADY_EXISTS},
    413: {grpc.StatusCode.RESOURCE_EXHAUSTED},
    422: {grpc.StatusCode.INVALID_ARGUMENT},
}
#: Reads are of what exists, changes of what does not: no request changes the answer to the next.
_EXISTING = {"model": "digits", "name": "validation", "alias": "champion"}
_MISSING = {"model": "none", "name": "digits", "alias": "shadow"}
_BUCKET = {"started_at": 0.0, "predictions": [], "confidence_sums": []}
_USUAL: dict[str, Any] = {
    "id": "none", "classes": 4, "url": "http://127.0.0.1/", "event_id": 1, "version": 1,
    "dataset": "validation", "versions": ["champion"], "buckets": [_BUCKET],
}  # fmt: skip


class Route(NamedTuple):
    """An operation in the OpenAPI document."""

    verb: str
    path: str
    operation: dict[str, Any]

    def usual(self, message: Any) -> dict[str, Any]:
        """Return the fields of a request that is not refused for its values."""
        values = {**(_EXISTING if self.verb == "get" else _MISSING), **_USUAL}
        fields = [field.name for field in message.fields if field.name in values]
        if self.verb == "get":  # filters would find nothing
            fields = [name for name in fields if f"{{{name}}}" in self.path or name == "id"]
        return {name: values[name] for name in fields}

    def request(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a request with these fields."""
        query, path = {}, self.path
        for parameter in self.operation.get("parameters", ()):
            name = parameter["name"]
            field = next((field for field in _field_names(name) if field in fields), None)
            if field is not None and parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", quote(str(fields.pop(field)), safe=""))
            elif field is not None:
                query[name] = fields.pop(field)
        request = {"method": self.verb, "url": path, "params": query}
        if "requestBody" in self.operation:
            request["content"] = json.dumps(fields)  # NaN too
            request["headers"] = {"Content-Type": "application/json"}
        return request


def _field_names(parameter: str) -> tuple[str, str, str]:
    return parameter, parameter.rpartition("_")[2], f"{parameter}s"


def _leaves(message: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in message.fields:
        if field.message_type is None:
            yield (*path, field.name), field
        elif field.message_type.file.package == "recalib.v1":
            yield from _leaves(field.message_type, (*path, field.name))


def _message(kind: Any, usual: dict[str, Any], path: tuple[str, ...], value: Any) -> Any:
    """Return a message with a value in the field at `path`."""
    message = parent = kind(**usual)
    for name in path[:-1]:
        child = getattr(parent, name)
        parent = child[0] if name == "buckets" else child
    if parent.DESCRIPTOR.fields_by_name[path[-1]].is_repeated:
        getattr(parent, path[-1])[:] = [value]
    else:
        setattr(parent, path[-1], value)
    return message


def _rest_fields(
    usual: dict[str, Any], path: tuple[str, ...], field: Any, value: Any
) -> dict[str, Any]:
    """Return the fields of that message as REST has them."""
    value = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    value = str(value) if field.enum_type is not None else value
    value = [value] if field.is_repeated else value
    if path[0] == "buckets":
        return {**usual, "buckets": [{**_BUCKET, path[1]: value}]}
    if path[-1] == "items":  # of `Tags`
        path = path[:-1]
    if path[0] == "settings":
        path = path[1:]
    if path == ("labels", "labels"):
        path = ("classes",)
    for name in reversed(path):
        value = {name: value}
    return {**usual, **value}


def _refusal(service: Service, request: dict[str, Any]) -> tuple[int, set[str]]:
    """Return the status of REST and the fields that it refuses."""
    answer = service.client.request(**request)
    errors = answer.json().get("errors", ()) if answer.status_code >= 400 else ()
    return answer.status_code, {error["field"] for error in errors}


def _rpc_refusal(rpc: Rpc, method: Any, message: Any) -> tuple[grpc.StatusCode, set[str]]:
    service = method.containing_service.name
    stub = getattr(rpc, {"TrainingRuns": "training_runs"}.get(service, service.lower()))
    try:
        answer = getattr(stub, method_name(method.name))(message)
        if method.server_streaming:
            list(answer)
    except grpc.RpcError as error:
        has_fields = error.code() in _CODES[413] | _CODES[422]
        return error.code(), set(violations(error)) if has_fields else set()
    return grpc.StatusCode.OK, set()


def _is_same(field: str, rpc_field: str) -> bool:
    """Return whether two fields are the same; only REST has places, and some other names."""
    place, _, name = field.partition(".")
    if place not in ("query", "path"):
        return field == rpc_field
    name, _, item = name.partition(".")
    names = [f"{name}.{item}" if item else name for name in _field_names(name)]
    return rpc_field in names


def test_rest_and_grpc_refuse_the_same_values(ready: Service, rpc: Rpc) -> None:
    """Reproduced at first: ListModels(name="a\\0b") was INTERNAL on PostgreSQL, and 422 in REST."""
    routes = {
        operation["operationId"]: Route(verb, path, operation)
        for path, verbs in ready.client.app.openapi()["paths"].items()  # type: ignore[attr-defined]
        for verb, operation in verbs.items()
    }
    differences, refusals = [], 0
    for method in _METHODS:
        kind: Any = GetMessageClass(method.input_type)
        route = routes[method_name(method.name)]
        usual = route.usual(kind.DESCRIPTOR)
        for path, field in _leaves(kind.DESCRIPTOR):
            for value in _BAD.get(field.type, ()):
                request = route.request(_rest_fields(usual, path, field, value))
                status, fields = _refusal(ready, request)
                code, rpc_fields = _rpc_refusal(rpc, method, _message(kind, usual, path, value))
                refusals += status == 422
                are_same = len(fields) == len(rpc_fields) and all(
                    any(_is_same(field, other) for other in rpc_fields) for field in fields
                )
                if code not in _CODES[status] or not are_same:
                    case = method.name, ".".join(path), repr(value)[:20]
                    differences.append((*case, status, fields, code, rpc_fields))
    assert differences == []
    assert refusals > 100


def test_headers_of_uploads_and_streams_are_refused_as_in_rest(ready: Service, rpc: Rpc) -> None:
    bad, model = grpc.StatusCode.INVALID_ARGUMENT, {"model": "digits"}
    batch = pb.BatchHeader(**model, version="a\0b", content_type="application/x-npz")
    replay = pb.ReplayHeader(**model, version="a\0b")
    upload = pb.UploadHeader(**model, name="x", uri="file:///" + "x" * 2_000)
    for call, request, field in (
        (rpc.batches.create_batch, pb.CreateBatchRequest(header=batch), "version"),
        (rpc.monitoring.create_replay, pb.CreateReplayRequest(header=replay), "version"),
        (rpc.datasets.upload_dataset, pb.UploadDatasetRequest(header=upload), "uri"),
    ):
        assert set(violations(refused(bad, call, iter([request])))) == {field}
    for fields, field in (
        ({"models": ["a\0b"]}, "models.0"),
        ({"types": ["?"]}, "type"),
        ({"after": -1}, "after"),
    ):
        error = refused(bad, rpc.events.stream_events, pb.StreamEventsRequest(**fields))
        assert set(violations(error)) == {field}
