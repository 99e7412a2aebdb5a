"""Operations on jobs, independent of the transport."""

from __future__ import annotations

from recalib.contract.jobs import Job, JobPage, JobState
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.access.visible_jobs import visible_job
from service.idempotency import EmptyRequest, run_once
from service.pagination import decode_number, next_cursor


def list_jobs(
    tx: Transaction, model: str | None, state: JobState | None, limit: int, cursor: str | None
) -> JobPage:
    """Return a page of jobs, newest first; raise `NotFoundError` if the model does not exist."""
    current_principal().check_model(model)
    owner = tx.models.get(model) if model is not None else None
    jobs = tx.jobs.page(owner, state, decode_number(cursor), limit + 1)
    following = next_cursor(jobs, limit, lambda job: str(job.sequence))
    return JobPage(items=[Job.model_validate(job) for job in jobs[:limit]], next_cursor=following)


def get_job(tx: Transaction, id: str) -> Job:
    """Return a job's state, progress and result, or raise `NotFoundError`."""
    return Job.model_validate(visible_job(tx, id))


def cancel_job(tx: Transaction, id: str, key: str | None) -> Job:
    """Cancel a job: a queued job at once, a running job at its next step.

    Raises
    ------
    NotFoundError: the job does not exist.
    ConflictError: `key` was used with another request.
    """
    before = visible_job(tx, id)

    def act() -> Job:
        job = tx.jobs.cancel(id)
        if job != before:
            tx.audit.record(
                current_principal().name, "cancel_job", job.model, id, f"a {job.kind} job"
            )
        return Job.model_validate(job)

    return run_once(tx, key, "cancel_job", EmptyRequest(of=id), 200, Job, act)
