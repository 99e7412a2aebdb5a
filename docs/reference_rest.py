"""The pages of the REST and gRPC interfaces: from the OpenAPI document and the descriptors."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from docs.reference_tables import table
from recalib.client import Client
from recalib.settings import Settings
from service.app import create_app
from service.http.openapi import DESCRIPTIONS

_PROTO = Path(__file__).parents[1] / "proto"
_REFERENCE = "#/components/schemas/"


@functools.cache  # several pages read it
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a server with the default settings."""
    with tempfile.TemporaryDirectory() as folder:
        return create_app(Settings(home=Path(folder))).openapi()


def rest() -> str:
    """Return the page of the operations of REST."""
    document = openapi()
    text = "# REST interface\n\nThis page is the OpenAPI document of a server, which serves it at "
    text += "`/openapi.json`, and a page to try it at `/docs`. Bodies and answers have "
    text += (
        "[schemas](rest-schemas.md). [Errors](errors.md) are a [Problem](rest-schemas.md#problem), "
    )
    text += "as `application/problem+json`; an operation may answer these:\n\n"
    rows = [[str(status), meaning] for status, meaning in DESCRIPTIONS.items()]
    text += table(["status", "meaning"], rows)
    for tag in document["tags"]:
        text += f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    text += _operation(f"{method.upper()} {path}", operation)
    return text


def _operation(route: str, operation: Mapping[str, Any]) -> str:
    text = f"\n### `{route}`\n\n{operation['summary']}\n\n{operation.get('description', '')}\n\n"
    name = operation["operationId"]
    in_client = ", also in Python and in `recalib api`" if hasattr(Client, name) else ""
    text += f"Operation `{name}`{in_client}.\n\n"
    rows = [
        [f"`{parameter['name']}`", parameter["in"], type_of(parameter["schema"]),
         parameter.get("description", "")]
        for parameter in operation.get("parameters", [])
    ]  # fmt: skip
    if rows:
        text += table(["parameter", "in", "type", "meaning"], rows) + "\n"
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        text += f"Body: `{media_type}`, {type_of(content['schema'])}.\n\n"
        if "example" in content:
            text += f"```json\n{json.dumps(content['example'], indent=2)}\n```\n\n"
    rows = [
        [status, _answer(response), response["description"]]
        for status, response in operation["responses"].items()
        if int(status) not in DESCRIPTIONS
    ]
    return text + table(["status", "content", "meaning"], rows)


def _answer(response: Mapping[str, Any]) -> str:
    kinds = dict.fromkeys(
        type_of(content.get("schema", {})) or f"`{media_type}`"
        for media_type, content in response.get("content", {}).items()
    )
    return ", ".join(kinds)


def type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in words, with a link to a named schema."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[{name}](rest-schemas.md#{_anchor(name)})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(map(type_of, schema.get("anyOf") or schema["oneOf"]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = str(schema.get("format") or schema.get("type", ""))
    if "items" in schema:
        return f"array of {type_of(schema['items'])}"
    limits = [
        f"{sign} {schema[name]:,}"
        for name, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if name in schema
    ]
    return " ".join([kind, *limits])


def _anchor(name: str) -> str:
    return name.lower()


def schemas() -> str:
    """Return the page of all schemas with their properties."""
    text = "# Schemas of REST\n\n[The operations](rest.md) take and return these.\n"
    for name, schema in sorted(openapi()["components"]["schemas"].items()):
        text += f"\n## {name}\n\n{schema.get('description', '')}\n\n"
        rows = [
            [f"`{key}`", type_of(value), _default(key, value, schema), value.get("description", "")]
            for key, value in schema.get("properties", {}).items()
        ]
        if rows:
            text += table(["property", "type", "default", "meaning"], rows)
    return text


def _default(key: str, value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "default" in value:
        return f"`{json.dumps(value['default'])}`"
    return "required" if key in schema.get("required", ()) else ""


def grpc() -> str:
    """Return the page of services and messages of gRPC, with the comments of the proto file."""
    text = "# gRPC interface\n\n[recalib.proto](../../proto/recalib/v1/recalib.proto) is this page "
    text += "for programs; a server also answers reflection.\n"
    (file,) = (file for file in _descriptors().file if file.package == "recalib.v1")
    comments = {
        tuple(place.path): place.leading_comments or place.trailing_comments
        for place in file.source_code_info.location
    }
    for index, service in enumerate(file.service):
        rows = [
            [f"`{method.name}`", _message(method.input_type, method.client_streaming),
             _message(method.output_type, method.server_streaming),
             comments.get((6, index, 2, place), "")]
            for place, method in enumerate(service.method)
        ]  # fmt: skip
        text += f"\n## {service.name}\n\n{comments.get((6, index), '')}\n"
        text += table(["RPC", "request", "answer", "meaning"], rows)
    for path, message in _messages(file.message_type, (4,)):
        rows = [
            [
                f"`{field.name}`",
                _type(field),
                str(field.number),
                comments.get((*path, 2, place), ""),
            ]
            for place, field in enumerate(message.field)
        ]
        text += f"\n## Message {message.name}\n\n{comments.get(path, '')}\n"
        text += table(["field", "type", "number", "meaning"], rows) if rows else ""
    return text


def _descriptors() -> FileDescriptorSet:
    """Return the descriptors with their comments, which generated modules lack."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set"
        names = [str(name.relative_to(_PROTO)) for name in _PROTO.rglob("*.proto")]
        arguments = ["", f"-I{_PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
        arguments += ["--include_source_info", f"--descriptor_set_out={path}", *names]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc fails")
        return FileDescriptorSet.FromString(path.read_bytes())


def _messages(messages: Any, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    for index, message in enumerate(messages):
        if not message.options.map_entry:
            yield (*path, index), message
            yield from _messages(message.nested_type, (*path, index, 3))


def _message(name: str, is_stream: bool) -> str:
    short = name.rpartition(".")[2]
    link = f"[{short}](#message-{short.lower()})" if name.startswith(".recalib") else f"`{short}`"
    return f"stream of {link}" if is_stream else link


def _type(field: FieldDescriptorProto) -> str:
    if field.type_name.endswith("Entry") and field.label == field.LABEL_REPEATED:
        return "map"
    if field.type == field.TYPE_MESSAGE:
        kind = _message(field.type_name, False)
    else:
        kind = field.type_name.rpartition(".")[2] or field.Type.Name(field.type)[5:].lower()
    repeated = field.label == field.LABEL_REPEATED
    return f"repeated {kind}" if repeated else f"optional {kind}" * field.proto3_optional or kind
