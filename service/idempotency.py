"""Idempotency keys: a repeated request returns the stored answer and changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from recalib.core.access import ANONYMOUS
from recalib.errors import ConflictError
from recalib.registry import Transaction
from service.access.authenticator import current_principal

Answer = TypeVar("Answer", bound=BaseModel)

#: Time for which a response is kept for repeats.
ANSWERS_SECONDS = 86_400.0


class EmptyRequest(BaseModel):
    """The request of an operation without a body."""

    #: The resource in the path, unless the scope of the key contains it.
    of: str = ""


def run_once(
    tx: Transaction,
    key: str | None,
    scope: str,
    request: BaseModel,
    status: int,
    kind: type[Answer],
    act: Callable[[], Answer],
) -> Answer:
    """Return the answer to `request`; call `act` only if `key` is new in `scope`.

    The answer is stored in the transaction that does the work, so that neither exists without
    the other. Of two simultaneous requests the later gets a conflict, because keys are unique.
    REST and gRPC share the keys.

    Parameters
    ----------
    status: the HTTP status of the answer to a new request.

    Raises
    ------
    ConflictError: the key was used before, with another request.
    """
    if key is None:
        return act()
    # An answer is private to its caller, even if another caller uses the same key.
    if current_principal() is not ANONYMOUS:
        scope = f"{scope} by {current_principal().name}"
    # The request has not been checked yet: json escapes text that is not valid Unicode.
    fingerprint = hashlib.sha256(
        json.dumps(request.model_dump(), default=bytes.hex).encode()
    ).hexdigest()
    stored = tx.idempotency.find(key, scope)
    if stored is not None:
        if stored.fingerprint != fingerprint:
            raise ConflictError(f"Idempotency-Key {key!r} was used for another request")
        return kind.model_validate_json(stored.body)
    answer = act()
    tx.idempotency.store(key, scope, fingerprint, status, answer.model_dump_json().encode())
    return answer
