"""From a request to a result: retries, and answers read as what they should be."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
import numpy as np

from recalib.client.errors import MalformedAnswerError, UnreachableError, error_of
from recalib.client.operations import Answer, Deadline, Pause, Plan, Request, Session
from recalib.decoding import decoder_of
from recalib.errors import InputError

__all__ = ["JSON", "encoded", "fetch", "new_key", "path", "read", "send", "succeed"]

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}
_KEY = "Idempotency-Key"
#: Statuses after which the same request may well be answered otherwise.
_PASSING = {429, 502, 503, 504}


def path(*parts: str) -> str:
    """Return `/v1/...` of names, escaped so that none is read as more than a name.

    Raises
    ------
    InputError: an empty name, which would make the path another one's.
    """
    escaped = []
    for part in parts:
        if not part:
            raise InputError("name", found="an empty name", accepted="the name of what is meant")
        # Libraries resolve "." and ".." before they send.
        escaped.append(quote(part, safe="") if part.strip(".") else part.replace(".", "%2E"))
    return "/v1/" + "/".join(escaped)


def new_key() -> dict[str, str]:
    """Return the header by which a server knows the second sending of a request."""
    return {_KEY: uuid4().hex}


def send(session: Session, request: Request, *, timeout: float | None = None) -> Plan[Answer]:
    """Return the answer to a request, whatever its status; ask again where that may help.

    Parameters
    ----------
    timeout: seconds for all attempts; the session's, unless given.

    Raises
    ------
    UnreachableError: no answer to the last attempt, or none in time.
    """
    deadline = Deadline(session.timeout if timeout is None else timeout)
    for attempt, bound in enumerate(session.retries.bounds(), start=1):
        pause = random.uniform(0, bound)  # noqa: S311  (no secret)
        try:
            answer: Answer = yield replace(request, seconds=deadline.left())
        except UnreachableError:
            if not deadline.allows(pause):
                raise
        else:
            pause = max(pause, _asked_for(answer))
            if not (_may_pass(answer, attempt) and deadline.allows(pause)):
                return answer
        yield Pause(pause)
    last: Answer = yield replace(request, seconds=deadline.left())
    return last


def succeed(session: Session, request: Request, *, timeout: float | None = None) -> Plan[Answer]:
    """Return the answer to a request; raise what it says where it is no success."""
    answer = yield from send(session, request, timeout=timeout)
    if not 200 <= answer.status < 300:
        raise error_of(answer)
    return answer


def fetch(
    session: Session,
    kind: type[T],
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Plan[T]:
    """Return what the server answers in JSON, as `kind`; send `json` where there is some."""
    body = b"" if json is None else encoded(json)
    sent = {**(headers or {}), **({} if json is None else JSON)}
    request = Request(method, path, query or {}, sent, body)
    return read((yield from succeed(session, request)), kind)


def read(answer: Answer, kind: type[T]) -> T:
    """Return an answer's JSON as `kind`; `MalformedAnswerError` where it is something else."""
    try:
        return decoder_of(kind).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedAnswerError(answer, f"cannot be read: {error}") from None


def encoded(json: Any) -> bytes:
    """Return a body in JSON; raise `InputError` where something in it cannot be said so."""
    try:
        return msgspec.json.encode(json, enc_hook=_plain)
    except (TypeError, ValueError) as error:  # an option that is an array, say
        raise InputError("body", found=str(error), accepted="what JSON can say") from None


def _plain(value: Any) -> Any:
    """Return a number of NumPy's as Python's, which JSON can say."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__}")


def _may_pass(answer: Answer, attempt: int) -> bool:
    """Return whether another attempt may be answered otherwise.

    A repeated request that meets its own first sending, still at work, is a conflict; once the
    first has finished, its answer is there to be had.
    """
    itself = answer.status == 409 and attempt > 1 and _KEY in answer.request.headers
    return answer.status in _PASSING or itself


def _asked_for(answer: Answer) -> float:
    """Return the seconds of Retry-After; its other form, a date, is not one of ours."""
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0
