"""RPCs that call the endpoints of REST, with the validation of REST.

An RPC and the REST route of the same operation have one endpoint. The annotations of the endpoint
check the fields of the message, so that both transports refuse the same requests.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import AsyncIterator, Callable, Container
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import Response
from fastapi.responses import StreamingResponse
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct

from service.arguments import arguments_of
from service.grpc.messages import enum_name, struct_to_dict, to_message
from service.grpc.rpc import Context
from service.state import State

Endpoint = Callable[..., Any]

_KEY = "idempotency-key"
#: Fields and values that have another name in REST.
_REST_NAMES = {"recalib.v1.CreateModelRequest.labels": "classes"}
_REST_VALUES: dict[str, dict[str | int, Any]] = {"Promote": {"always": True, "never": False}}
#: Bytes of one message of a download; by default, clients accept 4 MB.
_CHUNK = 2**20


class MessageArguments:
    """The arguments of an endpoint, read from a message.

    A parameter has the name of its field, or the field is its last word (`id` of `job_id`) or its
    plural (`types` of `type`). All other fields are the body; so is the content of a single one
    that the body lacks (`settings`). A number or text that is 0 or empty counts as not set where
    REST does not require it.
    """

    def __init__(self, endpoint: Endpoint, message: type[Message]) -> None:
        self._arguments = arguments_of(endpoint)
        defaults, body = self._arguments.defaults, self._arguments.body
        #: The field of each parameter.
        self._fields = {
            name: _field_name(name, message.DESCRIPTOR) for name in defaults if name != "body"
        }
        self._required = {field for name, field in self._fields.items() if defaults[name] is ...}
        #: The field whose content is the body.
        self._content: str | None = None
        if body is not None:
            rest = set(message.DESCRIPTOR.fields_by_name) - set(self._fields.values())
            content = inspect.signature(body).parameters
            self._required |= rest & {
                name for name, field in content.items() if field.default is field.empty
            }
            if len(rest) == 1 and not rest & content.keys():
                (self._content,) = rest

    def of(self, message: Message, context: Context) -> dict[str, Any]:
        """Return the arguments by name.

        Raises
        ------
        RequestValidationError: REST refuses them.
        """
        values = {**_fields(message, self._required), **_metadata(context)}
        arguments = {
            name: values.pop(field) for name, field in self._fields.items() if field in values
        }
        if self._arguments.body is not None:
            arguments["body"] = values if self._content is None else values.get(self._content, {})
        return self._arguments.checked(arguments, self._fields)


def bridged(method: MethodDescriptor, endpoint: Endpoint, state: State) -> Callable[..., Any]:
    """Return the method that answers an RPC by the endpoint of its operation."""
    arguments = MessageArguments(endpoint, GetMessageClass(method.input_type))
    response = GetMessageClass(method.output_type)

    def call(request: Message, context: Context) -> Message:
        return to_message(response, endpoint(**arguments.of(request, context), state=state))

    async def call_asynchronous(request: Message, context: Context) -> Message:
        return to_message(response, await endpoint(**arguments.of(request, context), state=state))

    async def download(request: Message, context: Context) -> AsyncIterator[Message]:
        values = arguments.of(request, context)
        answer: Response = await to_thread.run_sync(partial(endpoint, **values, state=state))
        async for data in _pieces(answer):
            yield response(data=data)

    if method.server_streaming:
        return download
    return call_asynchronous if inspect.iscoroutinefunction(endpoint) else call


async def _pieces(answer: Response) -> AsyncIterator[Any]:
    if isinstance(answer, StreamingResponse):
        async for piece in answer.body_iterator:
            yield piece
    else:
        for start in range(0, len(answer.body), _CHUNK):
            yield bytes(answer.body[start : start + _CHUNK])


def _field_name(parameter: str, message: Any) -> str:
    if parameter == "idempotency_key":
        return _KEY
    names = (parameter, parameter.rpartition("_")[2], f"{parameter}s")
    return next(name for name in names if name in message.fields_by_name)


def _metadata(context: Context) -> dict[str, str | bytes]:
    """Return the idempotency key of an RPC, if it has one."""
    return {name: value for name, value in context.invocation_metadata() or () if name == _KEY}


def _fields(message: Message, required: Container[str] | None = None) -> dict[str, Any]:
    """Return the fields of a message as REST has them.

    Parameters
    ----------
    required: fields without presence that count although they are 0 or empty; None: all of them.
    """
    return {
        _REST_NAMES.get(field.full_name, field.name): _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if (
            message.HasField(field.name)
            if field.has_presence
            else required is None or field.name in required or getattr(message, field.name)
        )
    }


def _value(field: Any, value: Any) -> Any:
    """Return the value of a field as REST has it."""
    if field.is_repeated:
        return [_item(field, item) for item in value]
    return _item(field, value)


def _item(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        name = enum_name(field.enum_type, value)
        return _REST_VALUES.get(field.enum_type.name, {}).get(name, name)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value)
    if field.message_type is None:
        return value
    if isinstance(value, Struct):
        return struct_to_dict(value, field.name)
    fields = field.message_type.fields
    if len(fields) == 1 and fields[0].is_repeated:  # a list that can be unset
        return _value(fields[0], getattr(value, fields[0].name))
    return _fields(value)
