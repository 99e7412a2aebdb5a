"""What all deletions have in common: the scope of `force`, the idempotency key, the answer."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from recalib.contract.base import utc
from recalib.contract.models import Deletion
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.access.visible_jobs import job_of_model
from service.idempotency import run_once


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
        return Deletion(deleted_at=utc(now), erased_after=utc(now + deleted_seconds))

    return run_once(tx, key, scope, _DeletionRequest(force=force), 200, Deletion, act)


def delete_job(
    tx: Transaction,
    model: str,
    kind: str,
    id: str,
    *,
    name: str,
    force: bool,
    key: str | None,
    deleted_seconds: float,
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

    def delete(actor: str) -> None:
        tx.deletions.run(job_of_model(tx, model, kind, id), actor, kind=name, force=force)

    scope = f"delete_{name} {model} {id}"
    return delete_once(tx, scope, delete, force=force, key=key, deleted_seconds=deleted_seconds)
