"""Jobs over REST."""

from __future__ import annotations

from recalib.contract.jobs import Job, JobPage, JobState
from service.http.idempotency_key import IdempotencyKey
from service.http.openapi import problems
from service.http.page_parameters import Cursor, Limit
from service.http.routing import Router
from service.jobs import handlers
from service.state import StateDependency

router = Router(prefix="/v1/jobs", tags=["jobs"], responses=problems(500, 503))


@router.operation("GET", "", "fit", finds_model=True, responses=problems(404, 422))
def list_jobs(
    state: StateDependency,
    model: str | None = None,
    job_state: JobState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobPage:
    """List jobs, newest first."""
    with state.registry.reading() as tx:
        return handlers.list_jobs(tx, model, job_state, limit, cursor)


@router.operation("GET", "/{job_id}", "fit", finds_model=True, responses=problems(404))
def get_job(job_id: str, state: StateDependency) -> Job:
    """Return a job's state, progress and result."""
    with state.registry.reading() as tx:
        return handlers.get_job(tx, job_id)


@router.operation("DELETE", "/{job_id}", "fit", finds_model=True, responses=problems(404, 409, 422))
def cancel_job(job_id: str, state: StateDependency, idempotency_key: IdempotencyKey = None) -> Job:
    """Cancel a job: at once while it is queued, at its next step while it runs."""
    with state.registry.transaction() as tx:
        return handlers.cancel_job(tx, job_id, idempotency_key)
