"""What all deletions have in common: the scope of `force`, the idempotency key, the answer."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from recalib.contract.base import utc
from recalib.contract.models import Deletion
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.access.caller_jobs import job_of_model
from service.idempotency import run_once
from service.state import State


class _DeletionRequest(BaseModel):
    force: bool


def delete_once(
    state: State,
    scope: str,
    delete: Callable[[Transaction, str], None],
    *,
    force: bool,
    key: str | None,
    is_content: bool = True,
) -> Deletion:
    """Delete a resource; a repetition with the same key gives the same answer.

    Parameters
    ----------
    scope: of the key, with the name of the resource.
    delete: is called with a transaction and the name of the caller.
    is_content: whether there is content to erase later.

    Raises
    ------
    ForbiddenError: `force`, without the scope `admin`.
    """
    principal = current_principal()
    if force:
        principal.check_scope("admin")
    seconds = state.settings.deleted_seconds if is_content else 0.0
    with state.registry.transaction() as tx:

        def act() -> Deletion:
            delete(tx, principal.name)
            now = tx.clock()
            return Deletion(deleted_at=utc(now), erased_after=utc(now + seconds))

        return run_once(tx, key, scope, _DeletionRequest(force=force), 200, Deletion, act)


def delete_job(
    state: State, model: str, kind: str, id: str, *, name: str, force: bool, key: str | None
) -> Deletion:
    """Delete a job of a model with its result, such as a batch or an evaluation.

    Parameters
    ----------
    kind: the kind of job.
    name: what the job is for its user: `batch` or `evaluation`.

    Raises
    ------
    NotFoundError: no such model or job of this kind.
    ConflictError: it has not ended, and `force` is not set.
    ForbiddenError: `force`, without the scope `admin`.
    """

    def delete(tx: Transaction, actor: str) -> None:
        tx.deletions.run(job_of_model(tx, model, kind, id), actor, kind=name, force=force)

    return delete_once(state, f"delete_{name} {model} {id}", delete, force=force, key=key)
