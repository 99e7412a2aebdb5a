"""Jobs as a caller sees them."""

from __future__ import annotations

from recalib.errors import ForbiddenError, NotFoundError
from recalib.registry import Job, Transaction
from service.access.authenticator import current_principal

__all__ = ["visible_job"]


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
