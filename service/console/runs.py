"""What jobs deliver as files: batches of a model, and training runs with their curves."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from anyio import to_thread
from fastapi import Response

from recalib.registry import Job
from recalib.registry.job_kinds import TRAIN
from service.batches.rest import get_batch_content, list_batches
from service.console.pictures import Theme, picture
from service.console.rendering import page
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.jobs.rest import get_job, list_jobs
from service.models.rest import get_model
from service.pagination import decode_number
from service.training_runs.handlers import get_training_run_file as read_file
from service.training_runs.rest import get_training_run_file

_PAGE_ROWS = 50
#: The file with a record of each epoch.
_RECORDS = "metrics.jsonl"
#: Columns of the table of epochs, and whether they are shares.
_METRICS = (("nll", False), ("accuracy", True), ("ece", True))


@router.get("/models/{model}/batches")
async def batches(visit: SignedIn, model: str, cursor: str | None = None) -> Response:
    facts, found = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(list_batches, model=model, limit=_PAGE_ROWS, cursor=cursor),
    )
    return page(
        visit, "batches", tab="batches", model=facts, batches=found.items,
        next_cursor=found.next_cursor,
    )  # fmt: skip


@router.get("/models/{model}/batches/{batch}/content")
async def batch_content(visit: SignedIn, model: str, batch: str) -> Response:
    return await _download(visit, get_batch_content, model=model, batch_id=batch)


@router.get("/training")
async def training_runs(visit: SignedIn, cursor: str | None = None) -> Response:
    visit.authorise(list_jobs)
    visit.principal.check_model(None)
    before = decode_number(cursor)

    def read() -> list[Job]:
        with visit.state.registry.reading() as tx:
            return tx.jobs.page(None, None, before, _PAGE_ROWS + 1, kind=TRAIN)

    runs = await to_thread.run_sync(read)
    shown = runs[:_PAGE_ROWS]
    more = shown[-1].sequence if len(runs) > _PAGE_ROWS else None
    return page(visit, "training_runs", runs=shown, next_cursor=more)


@router.get("/training/{run}")
async def training_run(visit: SignedIn, run: str) -> Response:
    job = await visit.call(get_job, job_id=run)
    records = await _records(visit, run) if _RECORDS in _files(job.result) else []
    return page(
        visit, "training_run", job=job, summary=(job.result or {}).get("summary", {}),
        files=_files(job.result), records=records, metrics=_METRICS,
    )  # fmt: skip


@router.get("/training/{run}/curves.svg")
async def curves_picture(visit: SignedIn, run: str, theme: Theme = "light") -> Response:
    return await picture("curves", {"records": await _records(visit, run), "name": run[:8]}, theme)


@router.get("/training/{run}/files/{name}")
async def training_file(visit: SignedIn, run: str, name: str) -> Response:
    return await _download(visit, get_training_run_file, job_id=run, name=name)


def _files(result: dict[str, Any] | None) -> dict[str, Any]:
    return (result or {}).get("files", {})


async def _records(visit: Visit, run: str) -> list[dict[str, Any]]:
    """Return the record of each epoch."""
    visit.authorise(get_training_run_file)

    def read() -> bytes:
        return b"".join(read_file(visit.state.registry, run, _RECORDS))

    content = await to_thread.run_sync(read)
    return [orjson.loads(line) for line in content.splitlines()]


async def _download(visit: Visit, endpoint: Any, **arguments: str) -> Response:
    """Return a file; the browser saves it."""
    answer: Response = await visit.call(endpoint, **arguments)
    visit.add_cookie(answer)
    return answer
