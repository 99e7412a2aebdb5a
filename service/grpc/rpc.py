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
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from anyio import to_thread
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from recalib.access import Principal
from recalib.errors import InputError
from recalib.observability import telemetry
from recalib.observability.logs import set_log_fields
from service.access.authenticator import Authenticator, set_principal
from service.grpc.errors import failure_of
from service.metrics import record_rpc
from service.request_ids import HEADER, request_id_of, traceparent_of

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

    def read(given: Any, key: str, caller: Principal | None) -> Any:
        """Return the message, or a stream's, each looked at for the model that it is about."""
        model, size = None, 0

        def one(content: bytes) -> Any:
            nonlocal model, size
            # Pieces of an upload are one body; those of other streams are answered one by one.
            size = len(content) + (size if operation == _UPLOAD else 0)
            access.limiter.check_body(caller, size)
            message = parse(content)
            # Later pieces of a stream need not name it again.
            model = _model_of(message) or model
            set_principal(access.check(key, operation, model))
            return message

        return _read_all(one, given) if method.client_streaming else one(given)

    @contextlib.asynccontextmanager
    async def arrived(given: Any, context: Context) -> AsyncIterator[Any]:
        """Yield what was sent by somebody who is known, and within his limits, until it is done."""
        async with _watched(path, context):
            sent = dict(context.invocation_metadata() or ()).get("authorization", "")
            key = sent if isinstance(sent, str) else sent.decode("latin-1")
            # Before anything is read, and again for the model that it is about.
            caller = await access.authenticate(key, operation, _address(context))
            with access.limiter.entered(caller):
                yield read(given, key, caller)

    async def answer(given: Any, context: Context) -> bytes:
        async with arrived(given, context) as sent:
            message: Message = await _done(act, sent, context)
            return message.SerializeToString()
        raise AssertionError("unreachable")  # aborting raises

    async def answers(given: Any, context: Context) -> AsyncIterator[bytes]:
        async with arrived(given, context) as sent:
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
async def _watched(path: str, context: Context) -> AsyncIterator[None]:
    """End an RPC as its errors say, count it, and do not begin it past its deadline."""
    started = time.perf_counter()
    code = grpc.StatusCode.OK
    sent = [
        (str(name).encode(), _bytes(value)) for name, value in context.invocation_metadata() or ()
    ]
    request_id = request_id_of(sent)
    telemetry.start_request_span(traceparent_of(sent))
    name = (HEADER.decode(), request_id)
    set_log_fields(request_id=request_id)
    context.set_trailing_metadata((name,))
    try:
        if _is_late(context):
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            await context.abort(code, "The deadline had passed before the work began.")
        yield
    except grpc.aio.AbortError:
        raise
    except (asyncio.CancelledError, GeneratorExit):
        late = _is_late(context)
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        raise
    except Exception as error:
        failure = failure_of(error)
        code = failure.code
        await context.abort(code, failure.message, (*failure.metadata(), name))
    finally:
        record_rpc(path, code.name, started)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _is_late(context: Context) -> bool:
    remaining = context.time_remaining()
    return remaining is not None and remaining <= 0
