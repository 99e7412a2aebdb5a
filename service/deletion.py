"""What all deletions have in common: the scope of `force`, the idempotency key, the answer."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.idempotency import run_once
from service.schemas.deletion import Deletion
from service.times import iso

__all__ = ["delete_once"]


class _DeletionRequest(BaseModel):
    force: bool


def delete_once(
    tx: Transaction,
    scope: str,
    delete: Callable[[str], None],
    *,
    force: bool,
    key: str | None,
    deleted_seconds: float,
) -> Deletion:
    """Delete a resource; a repetition with the same key gives the same answer.

    Parameters
    ----------
    scope: of the key, with the name of the resource.
    delete: is called with the name of the caller.
    deleted_seconds: time until the content is erased.

    Raises
    ------
    ForbiddenError: `force`, without the scope `admin`.
    """
    principal = current_principal()
    if force:
        principal.check_scope("admin")

    def act() -> Deletion:
        delete(principal.name)
        now = tx.clock()
        return Deletion(deleted_at=iso(now), erased_after=iso(now + deleted_seconds))

    return run_once(tx, key, scope, _DeletionRequest(force=force), 200, Deletion, act)
