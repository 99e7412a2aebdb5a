"""Jobs as their caller requests and sees them."""

from __future__ import annotations

from typing import Any

from recalib.errors import ForbiddenError, LimitedError, NotFoundError
from recalib.registry import Job, Transaction
from service.access.authenticator import current_principal
from service.metrics import LIMITED

_RETRY_SECONDS = 60


def enqueue(tx: Transaction, kind: str, payload: dict[str, Any], **options: Any) -> Job:
    """Add a job of the current caller, as `Jobs.enqueue` does.

    Raises
    ------
    LimitedError: too many jobs of the caller are queued. Concurrent requests may exceed the limit.
    """
    principal = current_principal()
    limit = None if principal.limits is None else principal.limits.queued_jobs
    if limit and tx.jobs.count_queued(principal.name) >= limit:
        LIMITED.labels("jobs").inc()
        raise LimitedError(f"{principal.name!r} has {limit} queued jobs, its limit", _RETRY_SECONDS)
    return tx.jobs.enqueue(kind, payload, owner=principal.name, **options)


def job_of_model(tx: Transaction, model: str, kind: str, id: str) -> Job:
    """Return a job of a kind of a model, which the caller may read; or raise `NotFoundError`."""
    owner = tx.models.get(model)
    job = tx.jobs.get(id)
    if (job.model, job.kind) != (owner.name, kind):
        raise NotFoundError("job", id, hint=f"{model} has no {kind} job of this id")
    return job


def visible_job(tx: Transaction, id: str) -> Job:
    """Return a job; raise `NotFoundError` if it does not exist.

    The error is the same if the caller's key is not for the job's model, so that no answer shows
    which jobs exist.
    """
    job = tx.jobs.get(id)
    try:
        current_principal().check_model(job.model)
    except ForbiddenError:
        raise NotFoundError("job", id) from None
    return job
