"""The jobs that a caller requests."""

from __future__ import annotations

from typing import Any

from recalib.errors import LimitedError
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
