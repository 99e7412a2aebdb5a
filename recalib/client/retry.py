"""Sending requests: retries, error statuses, and JSON in both directions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError

from recalib.client.errors import InvalidResponseError, UnreachableError, service_error
from recalib.client.operations import Deadline, Flow, Pause, Request, Response, Session
from recalib.core.decoding import decoder_of
from recalib.errors import InputError

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}
_IDEMPOTENCY_KEY = "Idempotency-Key"
#: Statuses of temporary failures.
_TEMPORARY_STATUSES = {429, 502, 503, 504}


def path(*parts: str) -> str:
    """Return the path `/v1/...` of the names, each escaped as one path segment.

    Raises
    ------
    InputError: a name is empty, which would change the meaning of the path.
    """
    escaped = []
    for part in parts:
        if not part:
            raise InputError("name", found="an empty name", accepted="a name")
        # HTTP libraries resolve "." and ".." before they send a request.
        escaped.append(quote(part, safe="") if part.strip(".") else part.replace(".", "%2E"))
    return "/v1/" + "/".join(escaped)


def idempotency_headers(key: str | None = None) -> dict[str, str]:
    """Return an idempotency key, by which the server recognises a repeated request."""
    return {_IDEMPOTENCY_KEY: uuid4().hex if key is None else key}


def send(session: Session, request: Request, *, timeout: float | None = None) -> Flow[Response]:
    """Return the response of any status; retry after temporary failures.

    Parameters
    ----------
    timeout: seconds for all attempts; by default the session's.

    Raises
    ------
    UnreachableError: the last attempt got no response, or the timeout is over.
    """
    deadline = Deadline(session.timeout if timeout is None else timeout)
    for attempt, bound in enumerate(session.retries.bounds(), start=1):
        pause = random.uniform(0, bound)  # noqa: S311  (no secret)
        try:
            response: Response = yield replace(request, seconds=deadline.remaining())
        except UnreachableError:
            if not deadline.allows(pause):
                raise
        else:
            pause = max(pause, _retry_after_seconds(response))
            if not (_is_temporary(response, attempt) and deadline.allows(pause)):
                return response
        yield Pause(pause)
    last_response: Response = yield replace(request, seconds=deadline.remaining())
    return last_response


def send_checked(
    session: Session, request: Request, *, timeout: float | None = None
) -> Flow[Response]:
    """Return the response to a request; raise `ServiceError` if its status is not 2xx."""
    response = yield from send(session, request, timeout=timeout)
    if not 200 <= response.status < 300:
        raise service_error(response)
    return response


def fetch(
    session: Session,
    kind: type[T],
    method: str,
    path: str,
    *,
    query: Mapping[str, str | Sequence[str]] | None = None,
    json: Any = None,
    key: str | None = None,
) -> Flow[T]:
    """Return the JSON response as `kind`; `json` is the request body.

    A method that changes something has an idempotency key: a retry does not repeat or undo what
    happened in between. `key` is that of an earlier request.
    """
    headers = {} if method == "GET" else idempotency_headers(key)
    body = b"" if json is None else encode_json(json)
    request = Request(method, path, query or {}, headers | ({} if json is None else JSON), body)
    return read((yield from send_checked(session, request)), kind)


def without_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that are given; servers of earlier versions refuse unknown ones."""
    return {name: value for name, value in fields.items() if value is not None}


def read(response: Response, kind: type[T]) -> T:
    """Decode the JSON of a response as `kind`; `InvalidResponseError` if it does not match."""
    try:
        result: T = _adapter(kind).validate_json(response.body)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        found = f"cannot be read: {first['msg']}" + (f" at {place}" if place else "")
        raise InvalidResponseError(response, found) from None
    return result


def read_struct(response: Response, kind: type[T]) -> T:
    """Decode the JSON of a response as a msgspec type, ten times as fast as `read`."""
    try:
        return decoder_of(kind).decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidResponseError(response, f"cannot be read: {error}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode_json(json: Any) -> bytes:
    """Return the value as JSON; `InputError` if JSON cannot represent it."""
    try:
        return msgspec.json.encode(json, enc_hook=_numpy_to_python)
    except (TypeError, ValueError) as error:  # such as an array as an option
        raise InputError("body", found=str(error), accepted="JSON values") from None


def _numpy_to_python(value: Any) -> Any:
    """Return a NumPy scalar as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__}")


def _is_temporary(response: Response, attempt: int) -> bool:
    """Return whether another attempt may succeed.

    A repeated request with an idempotency key gets a 409 while the server still processes the first
    one; later, the server returns the first response.
    """
    is_in_progress = (
        response.status == 409 and attempt > 1 and _IDEMPOTENCY_KEY in response.request.headers
    )
    return response.status in _TEMPORARY_STATUSES or is_in_progress


def _retry_after_seconds(response: Response) -> float:
    """Return the seconds of Retry-After; Recalib never sends its other form, a date."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0
