"""Jobs over REST."""

from __future__ import annotations

from fastapi import APIRouter

from service.jobs.schemas import Job, JobPage, JobState
from service.state import StateOf
from service.transport.description import problems
from service.transport.pages import Cursor, Limit, decode_cursor, encode_cursor

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=problems(500, 503))


@router.get("", responses=problems(404, 422), operation_id="list_jobs")
def list_jobs(
    state: StateOf,
    model: str | None = None,
    job_state: JobState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobPage:
    """List jobs, newest first."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model) if model is not None else None
        jobs = tx.jobs.page(owner, job_state, decode_cursor(cursor), limit + 1)
    more = jobs[limit - 1].id if len(jobs) > limit else None
    return JobPage(items=[Job.of(job) for job in jobs[:limit]], next_cursor=encode_cursor(more))


@router.get("/{job_id}", responses=problems(404), operation_id="get_job")
def get_job(job_id: str, state: StateOf) -> Job:
    """Return a job's state, progress and result."""
    with state.registry.reading() as tx:
        return Job.of(tx.jobs.get(job_id))


@router.delete("/{job_id}", responses=problems(404), operation_id="cancel_job")
def cancel_job(job_id: str, state: StateOf) -> Job:
    """Cancel a job: at once while it is queued, at its next step while it runs."""
    with state.registry.transaction() as tx:
        return Job.of(tx.jobs.cancel(job_id))
