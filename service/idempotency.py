"""The same request again gets the first one's answer, and does nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from recalib.access import ANONYMOUS
from recalib.errors import ConflictError
from recalib.registry import Transaction
from service.access.authenticator import current_principal

__all__ = ["ANSWERS_SECONDS", "EmptyRequest", "once"]

Answer = TypeVar("Answer", bound=BaseModel)

#: How long an answer is kept for whoever asks again.
ANSWERS_SECONDS = 86_400.0


class EmptyRequest(BaseModel):
    """A request that says nothing but what its path does."""

    #: Of what, where the path has a name that keys are not told apart by.
    of: str = ""


def once(
    tx: Transaction,
    key: str | None,
    scope: str,
    request: BaseModel,
    status: int,
    kind: type[Answer],
    act: Callable[[], Answer],
) -> Answer:
    """Return the answer to `request`, acting only if `key` is new in `scope`.

    The answer is stored in the transaction that does the work, so that neither exists without
    the other. Two at once meet on the key's uniqueness, and the later one gets a conflict. A key
    means the same whichever way its request came.

    Parameters
    ----------
    status: which HTTP has for the answer of a request that acted.

    Raises
    ------
    ConflictError: the key came before, with another request.
    """
    if key is None:
        return act()
    # What one caller was answered is not for another who says the same key.
    if current_principal() is not ANONYMOUS:
        scope = f"{scope} by {current_principal().name}"
    # json escapes what is no UTF-8; what the request holds has not been checked by now.
    fingerprint = hashlib.sha256(json.dumps(request.model_dump()).encode()).hexdigest()
    stored = tx.idempotency.find(key, scope)
    if stored is not None:
        if stored.fingerprint != fingerprint:
            raise ConflictError(f"Idempotency-Key {key!r} was used for another request")
        return kind.model_validate_json(stored.body)
    answer = act()
    tx.idempotency.store(key, scope, fingerprint, status, answer.model_dump_json().encode())
    return answer
