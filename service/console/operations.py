"""Jobs and the audit trail."""

from __future__ import annotations

from typing import get_args

from fastapi import Response

from recalib.contract.jobs import JobState
from service.audit.rest import list_audit
from service.console.rendering import page
from service.console.routing import router
from service.console.visits import SignedIn
from service.jobs.rest import get_job, list_jobs

_STATES = get_args(JobState)


@router.get("/jobs")
async def jobs(
    visit: SignedIn, model: str = "", state: str = "", cursor: str | None = None
) -> Response:
    chosen = state if state in _STATES else ""
    found = await visit.call(
        list_jobs, model=model or None, job_state=chosen or None, limit=50, cursor=cursor
    )
    return page(
        visit, "jobs", jobs=found.items, next_cursor=found.next_cursor, states=_STATES,
        chosen=chosen, of=model,
    )  # fmt: skip


@router.get("/jobs/{job}")
async def job(visit: SignedIn, job: str) -> Response:
    return page(visit, "job", job=await visit.call(get_job, job_id=job))


@router.get("/audit")
async def audit(
    visit: SignedIn, actor: str = "", model: str = "", cursor: str | None = None
) -> Response:
    found = await visit.call(
        list_audit, actor=actor or None, model=model or None, limit=50, cursor=cursor
    )
    return page(
        visit, "audit", entries=found.items, next_cursor=found.next_cursor, actor=actor, of=model
    )
