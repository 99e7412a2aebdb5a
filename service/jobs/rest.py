"""Jobs over REST."""

from __future__ import annotations

from recalib.contract.jobs import Job, JobPage, JobState
from service.access.authenticator import current_principal
from service.access.caller_jobs import visible_job
from service.http.openapi import problems
from service.http.parameters import Cursor, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import EmptyRequest, run_once
from service.pagination import decode_number, page_of
from service.state import StateDependency

router = Router(prefix="/v1/jobs", tags=["jobs"])


@router.operation("GET", "", "fit", finds_model=True, responses=problems(404))
def list_jobs(
    state: StateDependency,
    model: str | None = None,
    job_state: JobState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobPage:
    """List jobs, newest first."""
    current_principal().check_model(model)
    with state.registry.reading() as tx:
        owner = tx.models.get(model) if model is not None else None
        jobs = tx.jobs.page(owner, job_state, decode_number(cursor), limit + 1)
    return page_of(JobPage, jobs, limit, lambda job: str(job.sequence), Job.model_validate)


@router.operation("GET", "/{job_id}", "fit", finds_model=True)
def get_job(job_id: str, state: StateDependency) -> Job:
    """Return a job's state, progress and result."""
    with state.registry.reading() as tx:
        return Job.model_validate(visible_job(tx, job_id))


@router.operation("DELETE", "/{job_id}", "fit", finds_model=True)
def cancel_job(job_id: str, state: StateDependency, idempotency_key: IdempotencyKey = None) -> Job:
    """Cancel a job: at once while it is queued, at its next step while it runs."""
    with state.registry.transaction() as tx:
        before = visible_job(tx, job_id)

        def act() -> Job:
            job = tx.jobs.cancel(job_id)
            if job != before:
                actor, detail = current_principal().name, f"a {job.kind} job"
                tx.audit.record(actor, "cancel_job", job.model, job_id, detail)
            return Job.model_validate(job)

        request = EmptyRequest(of=job_id)
        return run_once(tx, idempotency_key, "cancel_job", request, 200, Job, act)
