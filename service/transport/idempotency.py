"""`Idempotency-Key`: the same request again gets the first one's answer, and does nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated

from fastapi import Header, Response
from pydantic import BaseModel

from recalib.errors import ConflictError
from recalib.registry import Transaction

__all__ = ["IdempotencyKey", "once"]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="Any text that is new for each new request: repeating a request under the "
        "same key returns the first answer and has no further effect.",
    ),
]


def once(
    tx: Transaction,
    key: str | None,
    scope: str,
    request: BaseModel,
    status: int,
    act: Callable[[], BaseModel],
) -> Response:
    """Return the answer to `request`, acting only if `key` is new in `scope`.

    The answer is stored in the transaction that does the work, so that neither exists without
    the other. Two at once meet on the key's uniqueness, and the later one gets a conflict.

    Raises
    ------
    ConflictError: the key came before, with another request.
    """
    if key is None:
        return _answer(status, act().model_dump_json().encode())
    # json escapes what is no UTF-8; what the request holds has not been checked by now.
    fingerprint = hashlib.sha256(json.dumps(request.model_dump()).encode()).hexdigest()
    stored = tx.idempotency.find(key, scope)
    if stored is not None:
        if stored.fingerprint != fingerprint:
            raise ConflictError(f"Idempotency-Key {key!r} was used for another request")
        return _answer(stored.status, stored.body)
    body = act().model_dump_json().encode()
    tx.idempotency.store(key, scope, fingerprint, status, body)
    return _answer(status, body)


def _answer(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")
