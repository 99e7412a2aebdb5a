"""gRPC services, made from their descriptors: reading, deadlines, errors and counting.

A service is a class with a method for each RPC, `create_model` for `CreateModel`. Methods that
take long without waiting are plain functions and run in a thread; the others are coroutines, or
asynchronous generators where they answer with a stream. Messages are read and written here and
not by gRPC, so that bytes which are no message end as any other bad input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from anyio import to_thread
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from recalib.errors import InputError
from service.access.authenticator import Authenticator
from service.access.permissions import RULES
from service.exchange import Exchange
from service.grpc.errors import failure_of
from service.metrics import record_rpc
from service.request_ids import HEADER

__all__ = ["Context", "handler_of", "idempotency_key", "method_name"]

Context = grpc.aio.ServicerContext[Any, Any]

_KEY = "idempotency-key"
_LONGEST_KEY = 255
_UPLOAD = "upload_dataset"


def handler_of(
    service: ServiceDescriptor,
    implementation: object,
    access: Authenticator,
    name: str | None = None,
) -> grpc.GenericRpcHandler[Any, Any]:
    """Return what a server needs to answer the RPCs of a service.

    Parameters
    ----------
    name: of the service on the wire, where it is not the descriptor's.
    """
    name = name or service.full_name
    methods = {
        method.name: _handler(
            f"/{name}/{method.name}",
            method,
            getattr(implementation, method_name(method.name)),
            access,
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(name, methods)


def method_name(rpc: str) -> str:
    """Return the name in Python of an RPC: `create_model` of `CreateModel`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", rpc).lower()


def idempotency_key(context: Context) -> str | None:
    """Return what stands in the metadata `idempotency-key`, or None.

    Raises
    ------
    InputError: an empty or a long one.
    """
    found = dict(context.invocation_metadata() or ()).get(_KEY)
    if found is None:
        return None
    key = found if isinstance(found, str) else found.decode("latin-1")
    if not 0 < len(key) <= _LONGEST_KEY:
        raise InputError(
            _KEY, found=f"{len(key)} characters", accepted=f"1 to {_LONGEST_KEY} characters"
        )
    return key


def _handler(
    path: str, method: MethodDescriptor, act: Callable[..., Any], access: Authenticator
) -> grpc.RpcMethodHandler[Any, Any]:
    parse = GetMessageClass(method.input_type).FromString
    operation = method_name(method.name)

    def read(content: Any, exchange: Exchange) -> Any:
        """Return the message, or the messages of a stream, each authorised for its model."""
        model, size = None, 0

        def parse_message(content: bytes) -> Any:
            nonlocal model, size
            # The messages of an upload are one body; those of other streams are separate.
            size = len(content) + (size if operation == _UPLOAD else 0)
            exchange.check_body(size)
            message = parse(content)
            # Later messages of a stream need not name it again.
            model = _model_of(message) or model
            exchange.reauthenticate()
            exchange.authorise(operation, model)
            return message

        if method.client_streaming:
            return _read_all(parse_message, content)
        return parse_message(content)

    @contextlib.asynccontextmanager
    async def admitted(content: Any, context: Context) -> AsyncIterator[Any]:
        """Yield the request of an admitted caller; release the caller afterwards."""
        async with _exchange(path, context, access) as exchange:
            if RULES.get(operation) != "open":
                await exchange.admit()
            yield read(content, exchange)

    async def answer(given: Any, context: Context) -> bytes:
        async with admitted(given, context) as sent:
            message: Message = await _done(act, sent, context)
            return message.SerializeToString()
        raise AssertionError("unreachable")  # aborting raises

    async def answers(given: Any, context: Context) -> AsyncIterator[bytes]:
        async with admitted(given, context) as sent:
            async for message in act(sent, context):
                yield message.SerializeToString()

    kind = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    handler: grpc.RpcMethodHandler[Any, Any] = kind(answers if method.server_streaming else answer)
    return handler


def _address(context: Context) -> str:
    """Return the address of the other end, of `ipv4:1.2.3.4:5` or `ipv6:%5B::1%5D:5`."""
    kind, _, place = unquote(context.peer() or "").partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def _model_of(message: Any) -> str | None:
    """Return the name of the model that a message is about; our own and V2's have it elsewhere."""
    for field in ("model", "model_name"):
        if hasattr(message, field):
            return str(getattr(message, field))
    if hasattr(message, "header"):  # of an upload, whose other pieces follow its first
        return message.header.model if message.HasField("header") else None
    of_model = message.DESCRIPTOR.name in ("ModelMetadataRequest", "ModelReadyRequest")
    return str(message.name) if of_model else None


async def _read_all(read: Callable[[bytes], Any], given: Any) -> AsyncIterator[Any]:
    async for one in given:
        yield read(one)


async def _done(act: Callable[..., Any], given: Any, context: Context) -> Any:
    if inspect.iscoroutinefunction(act):
        return await act(given, context)
    return await to_thread.run_sync(partial(act, given, context))


@contextlib.asynccontextmanager
async def _exchange(path: str, context: Context, access: Authenticator) -> AsyncIterator[Exchange]:
    """End an RPC with the status of its error, and count it; do not start one past its deadline."""
    metadata = {
        str(name).encode(): _bytes(value) for name, value in context.invocation_metadata() or ()
    }
    exchange = Exchange(access, metadata, _address(context))
    code = grpc.StatusCode.OK
    request_id = (HEADER.decode(), exchange.request_id)
    context.set_trailing_metadata((request_id,))
    try:
        if _is_late(context):
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            await context.abort(code, "The deadline had passed before the work began.")
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
        await context.abort(code, failure.message, (*failure.metadata(), request_id))
    finally:
        exchange.release()
        record_rpc(path, code.name, exchange.started)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _is_late(context: Context) -> bool:
    remaining = context.time_remaining()
    return remaining is not None and remaining <= 0
