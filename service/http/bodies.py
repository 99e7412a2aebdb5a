"""Request bodies: their size limits and their media type."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
import pydantic
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from recalib.errors import InputError, TooLargeError, UnavailableError, UnsupportedError
from recalib.settings import Settings
from service.access.body_budget import MEMORY_IN_USE, Body, BodyBudget
from service.exchange import Exchange
from service.http.fast_routes import header_map
from service.http.limited_protocol import IS_COMPLETE
from service.operations import MAX_DOCUMENT_BYTES, Operation
from service.state import State

M = TypeVar("M", bound=pydantic.BaseModel)


def parse_media_type(content_type: str, accepted: tuple[str, ...]) -> str:
    """Return a content type without its parameters.

    Raises
    ------
    UnsupportedError: it is not in `accepted`.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in accepted:
        raise UnsupportedError(
            "Content-Type", found=media_type[:80] or "none", accepted=", ".join(accepted)
        )
    return media_type


def decode_json(content: bytes, kind: Any = Any) -> Any:
    """Decode a JSON body.

    Raises
    ------
    InputError: it is not JSON.
    msgspec.ValidationError: it is not of this type.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError) and kind is not Any:
            raise
        # A number out of range is a ValidationError of any type.
        raise InputError("body", found="malformed JSON", accepted="JSON") from None


def validate(kind: type[M], body: Any) -> M:
    """Return a decoded body as a model, for routes that read bodies themselves.

    Raises
    ------
    RequestValidationError: as FastAPI raises it.
    """
    try:
        return kind.model_validate(body)
    except pydantic.ValidationError as error:
        violations = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(violations, body=body) from None


class _Limit(NamedTuple):
    """The largest body of a request."""

    bytes: int
    #: What to send instead, for the error.
    alternative: str = ""
    #: Whether the body is written to disk as it arrives.
    is_stream: bool = False


def _limit_of(settings: Settings, operation: Operation, headers: Mapping[bytes, bytes]) -> _Limit:
    limit = operation.limit
    if limit.other is not None and not limit.is_json(headers):
        is_stream = limit.other == "max_upload_bytes"
        return _Limit(getattr(settings, limit.other), is_stream=is_stream)
    largest = settings.max_json_bytes if limit.alternative else MAX_DOCUMENT_BYTES
    return _Limit(min(largest, settings.max_body_bytes), limit.alternative)


def limit_body(
    state: State, operation: Operation, scope: Scope, receive: Receive, exchange: Exchange
) -> Receive:
    """Return a `receive` that limits the size of a body; it is `receive` or a `LimitedBody`.

    A body whose announced length exceeds its limit is refused before it is read. The HTTP server
    enforces the announced length. The limit of the caller's key may be lower than the route's.
    """
    headers = header_map(scope)
    length = headers.get(b"content-length", b"")
    announced = int(length) if length.isdigit() else None
    key_limit = exchange.body_bytes
    if announced is not None and not key_limit and announced <= state.bodies.uncounted_bytes:
        return receive
    if scope["method"] in ("GET", "HEAD"):
        return receive
    limit = _limit_of(state.settings, operation, headers)
    lowest = min(limit.bytes, key_limit or limit.bytes)
    has_arrived = IS_COMPLETE in scope.get("state", {})
    limited = LimitedBody(receive, announced, limit, lowest, exchange, has_arrived)
    if not limit.is_stream:
        limited.count(state.bodies)
    return limited


@dataclass(eq=False)
class LimitedBody:
    """A `receive` that raises an error if the body is too large.

    A body that is kept in memory is counted and returned as one message. It is kept here, so that
    its memory is free as soon as it is evicted.

    Parameters
    ----------
    lowest: the smaller of the limits of route and key.
    has_arrived: whether the whole body is there, so that no call waits.
    """

    receive: Receive
    announced: int | None
    limit: _Limit
    lowest: int
    exchange: Exchange
    has_arrived: bool

    def __post_init__(self) -> None:
        self._body: Body | None = None
        self._parts = bytearray()  # and not a list: a part can be a single byte
        self._size = 0
        self._is_evicted = False
        #: Of the wait for the next part; an eviction ends it.
        self._wait = asyncio.timeout(None)

    def count(self, bodies: BodyBudget) -> None:
        """Keep the body in memory, and count it."""
        self._body = bodies.open(self.exchange.caller, self._evict)

    async def __call__(self) -> Message:
        """Return the next message.

        Raises
        ------
        TooLargeError: the body exceeds its limit.
        UnavailableError: there is no memory for it.
        """
        if self.announced is not None and self.announced > self.lowest:
            raise _too_large(self.announced, self.limit, self.exchange, "")
        body = self._body
        while True:
            message = await self._next_message()
            part = message.get("body", b"")
            self._size += len(part)
            if self._size > self.lowest:
                raise _too_large(self._size, self.limit, self.exchange, "over ")
            if body is None or message["type"] != "http.request":
                return message
            body.receive(len(part))
            is_complete = not message.get("more_body", False)
            if is_complete:
                body.complete()
                if not self._parts:
                    return message
            self._parts += part
            if is_complete:
                content = bytes(self._parts)
                self._parts = bytearray()
                return {"type": "http.request", "body": content, "more_body": False}

    async def _next_message(self) -> Message:
        if self._body is None:
            return await self.receive()
        message: Message = {}
        if self.has_arrived:  # no eviction has to end a wait
            message = await self.receive()
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as self._wait:
                    message = await self.receive()
        if self._is_evicted:
            raise UnavailableError(MEMORY_IN_USE)
        return message

    def _evict(self) -> None:
        self._is_evicted = True
        self._wait.reschedule(0)
        self._parts = bytearray()

    def release(self) -> None:
        """End the request."""
        self._parts = bytearray()
        if self._body is not None:
            self._body.release()


def _too_large(size: int, limit: _Limit, exchange: Exchange, prefix: str) -> TooLargeError:
    try:
        exchange.check_body(size)
    except TooLargeError as error:
        return error
    found, accepted = f"{prefix}{size} bytes", f"at most {limit.bytes} bytes"
    if limit.alternative:
        accepted += f"; {limit.alternative} for more"
    return TooLargeError("body", found=found, accepted=accepted)


async def read_body(receive: Receive) -> bytes:
    """Return the body of a request; `ClientDisconnect` if the client left before its end."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        return body  # small bodies arrive in one message
    parts = bytearray(body)  # and not a list: a part can be a single byte
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        parts += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return bytes(parts)
