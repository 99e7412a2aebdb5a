"""The list of models, and the pages of one."""

from __future__ import annotations

import asyncio
from typing import Annotated

from anyio import to_thread
from fastapi import Query, Response

from recalib.contract.calibrators import Calibrator
from recalib.contract.datasets import Dataset
from recalib.contract.monitoring import MonitoringReport
from recalib.errors import RecalibError
from recalib.files import SUFFIXES
from recalib.registry.overview import STATES, ModelOverview
from service.calibrators.rest import (
    get_alias_history,
    get_calibrator,
    list_aliases,
    list_calibrators,
)
from service.console.latest_window import WindowBins, read_window
from service.console.pictures import prepare_pictures
from service.console.rendering import page
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.datasets.rest import list_datasets
from service.models.rest import get_model
from service.monitoring.rest import get_monitoring, list_monitoring_history
from service.schemas import Text

_PAGE_ROWS = 50
Number = Annotated[int, Query(ge=1, le=100_000)]


@router.get("/models")
async def models(
    visit: SignedIn, name: Text = "", state: str = "", sort: str = "", number: Number = 1
) -> Response:
    prepare_pictures(visit)
    wanted = state if state in STATES else ""

    def read() -> tuple[list[ModelOverview], dict[str, int]]:
        of = visit.principal.models
        with visit.state.registry.reading() as tx:
            rows = tx.overview.page(
                _PAGE_ROWS, (number - 1) * _PAGE_ROWS,
                name=name, state=wanted or None, by_name=sort == "name", of=of,
            )  # fmt: skip
            return rows, tx.overview.counts(name, of)

    visit.authorise(get_model, next(iter(visit.principal.models or ()), None))
    rows, counts = await to_thread.run_sync(read)
    total = counts.get(wanted, 0) if wanted else sum(counts.values())
    return page(
        visit, "models", rows=rows, counts=counts, states=STATES, name=name, chosen=wanted,
        sort=sort, number=number, total=total, pages=max(1, -(-total // _PAGE_ROWS)),
    )  # fmt: skip


@router.get("/models/{model}")
async def model(visit: SignedIn, model: str) -> Response:
    """Show the state of the champion, what to do, and what happened."""
    prepare_pictures(visit)
    facts, report, aliases, changes = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(get_monitoring, model=model),
        visit.call(list_aliases, model=model),
        visit.call(get_alias_history, model=model, alias="champion", limit=20),
    )
    return page(
        visit, "model", tab="overview", model=facts, report=report, aliases=aliases.items,
        history=changes.items, rivals=await _rivals(visit, report),
    )  # fmt: skip


async def _rivals(visit: Visit, report: MonitoringReport) -> dict[str, Calibrator]:
    """Return the champion and the candidate that is compared with it; empty without one."""
    candidate = report.candidate
    if candidate is None or candidate.verdict not in (None, "proven") or report.version is None:
        return {}
    numbers = {"Champion": report.version, "Candidate": candidate.version}
    found = await asyncio.gather(
        *(
            visit.call(get_calibrator, model=report.model, version=number)
            for number in numbers.values()
        )
    )
    return dict(zip(numbers, found, strict=True))


@router.get("/models/{model}/monitoring")
async def monitoring(visit: SignedIn, model: str) -> Response:
    facts, report, history = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(get_monitoring, model=model),
        visit.call(list_monitoring_history, model=model, limit=48),
    )

    def read() -> WindowBins | None:
        with visit.state.registry.reading() as tx:
            return read_window(tx, report)

    return page(
        visit, "monitoring", tab="monitoring", model=facts, report=report, history=history.items,
        window=await to_thread.run_sync(read),
    )  # fmt: skip


@router.get("/models/{model}/versions")
async def versions(visit: SignedIn, model: str, cursor: str | None = None) -> Response:
    facts, found, aliases = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(list_calibrators, model=model, cursor=cursor),
        visit.call(list_aliases, model=model),
    )
    names: dict[int, list[str]] = {}
    for alias in aliases.items:
        names.setdefault(alias.version, []).append(alias.alias)
    return page(
        visit, "versions", tab="versions", model=facts, versions=found.items[::-1],
        names=names, next_cursor=found.next_cursor,
    )  # fmt: skip


@router.get("/models/{model}/versions/{version}")
async def version(visit: SignedIn, model: str, version: int) -> Response:
    facts, found, aliases = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(get_calibrator, model=model, version=version),
        visit.call(list_aliases, model=model),
    )
    champion = next((item.version for item in aliases.items if item.alias == "champion"), None)
    return page(visit, "version", tab="versions", model=facts, version=found, champion=champion)


@router.get("/models/{model}/datasets")
async def datasets(visit: SignedIn, model: str, cursor: str | None = None) -> Response:
    return await datasets_page(visit, model, cursor)


async def datasets_page(
    visit: Visit,
    model: str,
    cursor: str | None = None,
    added: Dataset | None = None,
    error: RecalibError | None = None,
) -> Response:
    """Show the data sets, with what became of an upload."""
    facts, found = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(list_datasets, model=model, cursor=cursor),
    )
    return page(
        visit, "datasets", error=error, tab="datasets",
        model=facts, datasets=found.items, next_cursor=found.next_cursor, added=added,
        suffixes=",".join(sorted(SUFFIXES)),
    )  # fmt: skip
