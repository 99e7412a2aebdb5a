"""Training runs over REST."""

from __future__ import annotations

from typing import Any

from fastapi.responses import StreamingResponse

from recalib.contract.jobs import Job
from recalib.contract.models import Deletion
from recalib.recipe import Recipe
from recalib.registry import Transaction
from service.deletion import delete_once
from service.http.openapi import BINARY, problems
from service.http.parameters import Force, IdempotencyKey
from service.http.routing import Router
from service.state import StateDependency
from service.training_runs import handlers

router = Router(prefix="/v1/training-runs", tags=["training"])

_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": BINARY}}}


@router.operation(
    "POST",
    "",
    "fit",
    finds_model=True,
    status_code=202,
    responses=problems(404),
)
def create_training_run(
    body: Recipe, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Job:
    """Train a network: answers with the job, whose `result` will list files and metrics."""
    with state.registry.transaction() as tx:
        return handlers.create_training_run(tx, body, idempotency_key, state.settings)


@router.operation("DELETE", "/{job_id}", "fit", finds_model=True)
def delete_training_run(
    job_id: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a training run with its files; a version that it published stays."""

    def delete(tx: Transaction, actor: str) -> None:
        tx.deletions.run(handlers.run_of(tx, job_id), actor, force=force)

    scope = f"delete_training_run {job_id}"
    return delete_once(state, scope, delete, force=force, key=idempotency_key)


@router.operation(
    "GET",
    "/{job_id}/files/{name}",
    "fit",
    finds_model=True,
    response_class=StreamingResponse,
    responses=_FILE,
)
def get_training_run_file(job_id: str, name: str, state: StateDependency) -> StreamingResponse:
    """Download a file that a run delivered, such as `weights.safetensors` or `report.html`."""
    pieces = handlers.get_training_run_file(state.registry, job_id, name)
    # A page is downloaded as well: it is not ours to run on this origin.
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)
