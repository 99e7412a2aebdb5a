"""gRPC handlers from service descriptors: parsing, admission, deadlines, errors and metrics.

Blocking methods are plain functions and run in a thread. Other methods are coroutines, or
asynchronous generators for response streams. Messages are parsed and serialised here and not by
gRPC, so that malformed bytes end as any other invalid input does.

Every RPC is registered as a request stream, which looks the same on the wire. gRPC would read the
message of a unary request before it calls the handler. The handler of a stream reads it, after the
caller and its scope are known from the metadata. HTTP/2 flow control holds back the rest: a refused
message takes at most the initial window of its stream, 64 KiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import re
import traceback
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from anyio import to_thread
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from recalib.errors import InputError, TooLargeError
from service.access.body_budget import Body
from service.exchange import Exchange
from service.grpc.errors import failure_of
from service.grpc.wire import check_fields
from service.metrics import record_rpc
from service.operations import DOCUMENT, MAX_DOCUMENT_BYTES, OPERATIONS
from service.request_ids import HEADER
from service.state import State

Context = grpc.aio.ServicerContext[Any, Any]


def handler_of(
    service: ServiceDescriptor,
    method_of: Callable[[MethodDescriptor], Callable[..., Any]],
    state: State,
    name: str | None = None,
) -> grpc.GenericRpcHandler[Any, Any]:
    """Return the generic handler of a service's RPCs.

    Parameters
    ----------
    method_of: returns the Python method that answers an RPC.
    name: of the service on the wire, if it differs from the descriptor's.
    """
    name = name or service.full_name
    methods = {
        method.name: _Rpc(f"/{name}/{method.name}", method, method_of(method), state).handler()
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(name, methods)


def method_name(rpc: str) -> str:
    """Return the Python method name of an RPC: `create_model` for `CreateModel`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", rpc).lower()


class _Rpc:
    """One RPC: it admits callers, reads their messages, and answers.

    Parameters
    ----------
    answer: the Python method.
    """

    def __init__(
        self, path: str, method: MethodDescriptor, answer: Callable[..., Any], state: State
    ) -> None:
        self._path, self._method, self._answer, self._state = path, method, answer, state
        self._operation = OPERATIONS[method_name(method.name)]
        self._parse = GetMessageClass(method.input_type).FromString
        is_open = self._operation.scope == "open"
        # A message without fields says nothing. An open RPC of a server that requires keys does not
        # read its message either: it could be as large as a batch, from a caller without a key.
        is_probe = is_open and state.access.required
        self._reads = bool(method.input_type.fields) and not is_probe
        # Large messages are limited by gRPC itself.
        self._max_bytes = MAX_DOCUMENT_BYTES if self._operation.limit == DOCUMENT else math.inf
        # A stream waits for its client most of the time, and a probe must always be answered.
        is_stream = method.client_streaming or method.server_streaming
        self._is_limited = not (is_stream or is_open)

    def handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        """Return what gRPC calls."""
        if self._method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(self._respond_stream)
        return grpc.stream_unary_rpc_method_handler(self._respond)

    async def _respond(self, content: Any, context: Context) -> bytes:
        async with self._admitted(content, context) as (request, _):
            message: Message = await _call(self._answer, request, context)
            return message.SerializeToString()
        raise AssertionError("unreachable")  # `abort` raises

    async def _respond_stream(self, content: Any, context: Context) -> AsyncIterator[bytes]:
        async with self._admitted(content, context) as (request, exchange):
            async for message in self._answer(request, context):
                exchange.reauthenticate()
                yield message.SerializeToString()

    @contextlib.asynccontextmanager
    async def _admitted(
        self, content: Any, context: Context
    ) -> AsyncIterator[tuple[Any, Exchange]]:
        """Yield the request of an admitted caller, who is released afterwards."""
        state, operation = self._state, self._operation
        load = state.load_shedding
        async with _exchange(self._path, context, state) as exchange:
            if not state.access.is_open(operation):
                await exchange.admit()
                exchange.check_scope(operation)
            if self._is_limited:
                load.check_rpc(operation)  # before the message takes memory
            body = state.bodies.open(exchange.caller, evict=None)
            try:
                request = await self._read(content, exchange, body)
                # An incomplete message holds no place.
                with load.count_rpc(operation) if self._is_limited else contextlib.nullcontext():
                    yield request, exchange
            finally:
                body.release()

    async def _read(self, content: Any, exchange: Exchange, body: Body) -> Any:
        """Return the message, or the messages of a stream."""
        if not self._reads:
            return self._parse(b"")
        messages = self._messages(content, exchange, body)
        if self._method.client_streaming:
            return messages
        async for message in messages:
            return message
        raise InputError("message", found="none", accepted="the message that this method takes")

    async def _messages(self, content: Any, exchange: Exchange, body: Body) -> AsyncIterator[Any]:
        """Yield the messages, each authorised for its model."""
        model, size = None, 0
        async for data in content:
            # The messages of an upload are one body; those of other streams are separate.
            size = len(data) + (0 if self._method.server_streaming else size)
            exchange.check_body(size)
            if len(data) > self._max_bytes:
                found, accepted = f"{len(data)} bytes", f"at most {self._max_bytes} bytes"
                raise TooLargeError("message", found=found, accepted=accepted)
            body.hold(len(data))
            check_fields(data, self._method.input_type)
            message = self._parse(data)
            # Later messages of a stream may omit the model.
            model = _model_of(message) or model
            exchange.reauthenticate()
            exchange.authorise(self._operation, model)
            yield message


def _peer(context: Context) -> str:
    """Return the IP address of a peer such as `ipv4:1.2.3.4:5` or `ipv6:%5B::1%5D:5`."""
    kind, _, address = unquote(context.peer() or "").partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def _model_of(message: Any) -> str | None:
    """Return the name of the model that a message concerns; its field depends on the protocol."""
    for field in ("model", "model_name"):
        if hasattr(message, field):
            return str(getattr(message, field))
    if hasattr(message, "header"):  # an upload: only its first message has a header
        return message.header.model if message.HasField("header") else None
    of_model = message.DESCRIPTOR.name in ("ModelMetadataRequest", "ModelReadyRequest")
    return str(message.name) if of_model else None


async def _call(method: Callable[..., Any], request: Any, context: Context) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(request, context)
    return await to_thread.run_sync(partial(method, request, context))


@contextlib.asynccontextmanager
async def _exchange(path: str, context: Context, state: State) -> AsyncIterator[Exchange]:
    """End an RPC with the status of its error, and count it; refuse one past its deadline."""
    metadata = {
        str(name).encode(): _bytes(value) for name, value in context.invocation_metadata() or ()
    }
    exchange = Exchange(state.access, metadata, _peer(context))
    code = grpc.StatusCode.OK
    request_id = (HEADER.decode(), exchange.request_id)
    context.set_trailing_metadata((request_id,))
    try:
        if _is_late(context):
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            await context.abort(code, "The deadline had passed before the work began.")
        with state.load_shedding.count_rpc_of(exchange.address):  # before the message takes memory
            yield exchange
    except grpc.aio.AbortError:
        raise
    except (asyncio.CancelledError, GeneratorExit):
        late = _is_late(context)
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        raise
    except Exception as error:
        failure = failure_of(error)
        code = failure.code
        # They hold the message, and gRPC's state of the RPC refers to them in a cycle.
        traceback.clear_frames(error.__traceback__)
        await context.abort(code, failure.message, (*failure.metadata(), request_id))
    finally:
        exchange.release()
        record_rpc(path, code.name, exchange.started)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _is_late(context: Context) -> bool:
    remaining = context.time_remaining()
    return remaining is not None and remaining <= 0
