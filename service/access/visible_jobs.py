"""Jobs as a caller sees them."""

from __future__ import annotations

from recalib.errors import ForbiddenError, NotFoundError
from recalib.registry import Job, Transaction
from service.access.authenticator import current_principal


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
