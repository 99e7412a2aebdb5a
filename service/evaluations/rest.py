"""Evaluations over REST."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio import to_thread
from fastapi.responses import HTMLResponse

from recalib.contract.evaluations import Evaluation, EvaluationPage
from recalib.contract.jobs import Job
from recalib.contract.models import Deletion
from recalib.registry.job_kinds import EVALUATE
from service.deletion import delete_job
from service.evaluations import handlers
from service.evaluations.schemas import EvaluationCreate
from service.http.parameters import Cursor, Force, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import run_once
from service.pagination import decode_number, page_of
from service.state import StateDependency

router = Router(prefix="/v1/models/{model}/evaluations", tags=["evaluations"])

#: The page is text and static pictures: it runs no scripts and loads nothing.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'; sandbox",
    "Referrer-Policy": "no-referrer",
}
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {"schema": {"type": "string"}}}}
}


@router.operation("POST", "", "fit", status_code=202)
async def create_evaluation(
    model: str,
    body: EvaluationCreate,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Measure versions on a data set, and compare them on its rows.

    Answers with the job, whose id is that of the evaluation.
    """

    def enqueue() -> Job:
        with state.registry.transaction() as tx:
            owner = tx.models.get(model)
            act = partial(handlers.request_evaluation, tx, owner, body)
            scope = f"create_evaluation {model}"
            return run_once(tx, idempotency_key, scope, body, 202, Job, act)

    if body.segments:
        await handlers.check_segments(state.registry, model, body.dataset, body.segments)
    return await to_thread.run_sync(enqueue)


@router.operation("GET", "", "fit")
def list_evaluations(
    model: str, state: StateDependency, limit: Limit = 100, cursor: Cursor = None
) -> EvaluationPage:
    """List a model's evaluations, newest first, without their pictures."""
    before = decode_number(cursor)
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        jobs = tx.jobs.page(owner, None, before, limit + 1, kind=EVALUATE)
    evaluation = partial(handlers.evaluation_of, content={})
    return page_of(EvaluationPage, jobs, limit, lambda job: str(job.sequence), evaluation)


@router.operation("GET", "/{evaluation_id}", "fit")
def get_evaluation(model: str, evaluation_id: str, state: StateDependency) -> Evaluation:
    """Return the state of an evaluation, its results and its pictures."""
    return handlers.get_evaluation(state.registry, model, evaluation_id)


@router.operation("DELETE", "/{evaluation_id}", "fit")
def delete_evaluation(
    model: str,
    evaluation_id: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete an evaluation with its page."""
    return delete_job(
        state, model, EVALUATE, evaluation_id, name="evaluation", force=force, key=idempotency_key
    )


@router.operation(
    "GET", "/{evaluation_id}/report", "fit", response_class=HTMLResponse, responses=_PAGE
)
def get_evaluation_report(model: str, evaluation_id: str, state: StateDependency) -> HTMLResponse:
    """Return the page of an evaluation, with its tables, pictures and warnings."""
    page = handlers.get_evaluation_report(state.registry, model, evaluation_id)
    return HTMLResponse(page, headers=_PAGE_HEADERS)
