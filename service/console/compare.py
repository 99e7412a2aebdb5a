"""Compare versions on data sets: evaluations, with paired differences from a baseline."""

from __future__ import annotations

import asyncio
import uuid
from hashlib import sha256
from typing import Any

from fastapi import Response

from recalib.contract.evaluations import Evaluation
from recalib.errors import InputError, RecalibError
from recalib.metrics.headline import headline_error
from service.calibrators.rest import list_aliases, list_calibrators
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.datasets.rest import list_datasets
from service.evaluations.rest import (
    create_evaluation,
    get_evaluation,
    get_evaluation_report,
    list_evaluations,
)
from service.evaluations.schemas import MAX_VERSIONS
from service.models.rest import get_model

IDENTITY = "identity"
#: The metrics of the table, where an evaluation has them.
_METRICS = ("nll", "brier", "binary_ece", "ece", "accuracy")
#: Prefixes of the check boxes' names.
_VERSION, _DATASET = "version:", "dataset:"


@router.get("/models/{model}/compare")
async def compare(
    visit: SignedIn, model: str, version: str = "", dataset: str = "", cursor: str | None = None
) -> Response:
    chosen = {f"{_VERSION}{version}", f"{_DATASET}{dataset}"} if version or dataset else set()
    return await _page(visit, model, chosen, cursor=cursor)


async def _page(
    visit: Visit,
    model: str,
    chosen: set[str],
    baseline: str = IDENTITY,
    segments: str = "",
    cursor: str | None = None,
    key: str | None = None,
    error: RecalibError | None = None,
) -> Response:
    """Show the form, and the evaluations with their differences."""
    facts, versions, aliases, datasets, found = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(list_calibrators, model=model),
        visit.call(list_aliases, model=model),
        visit.call(list_datasets, model=model),
        visit.call(list_evaluations, model=model, limit=20, cursor=cursor),
    )
    names = {str(item.version): item.card["map"] for item in versions.items[::-1]}
    for alias in aliases.items:
        names[str(alias.version)] = f"{names.get(str(alias.version), '')}, {alias.alias}"
    first = [f"{_VERSION}{IDENTITY}", *(f"{_VERSION}{name}" for name in list(names)[:2])]
    return page(
        visit, "compare", error=error, tab="compare",
        model=facts, versions=names, datasets=[item.name for item in datasets.items],
        chosen=chosen | set(first if error is None else ()), baseline=baseline, segments=segments,
        most=MAX_VERSIONS,
        evaluations=found.items, metrics={item.id: _metrics(item) for item in found.items},
        next_cursor=found.next_cursor, key=key,
    )  # fmt: skip


def _metrics(evaluation: Evaluation) -> list[str]:
    """Return the names of the metrics that the table of an evaluation shows."""
    known = evaluation.results[0].metrics if evaluation.results else {}
    return [name for name in _METRICS if name in known] or list(known)[:4]


@router.post("/models/{model}/compare")
async def request_comparison(visit: SignedIn, model: str) -> Response:
    """Enqueue an evaluation for each data set."""
    fields = await visit.form()
    chosen = {name for name in fields if name.startswith((_VERSION, _DATASET))}
    baseline, segments = fields.get("baseline", IDENTITY), fields.get("segments", "")
    datasets, versions = (
        [name.removeprefix(prefix) for name in fields if name.startswith(prefix)]
        for prefix in (_DATASET, _VERSION)
    )
    try:
        if not datasets or not versions:
            missing = "versions" if datasets else "datasets"
            raise InputError(missing, found="none", accepted="at least one")
        for dataset in datasets:
            body = {
                "dataset": dataset,
                "versions": [_number(version) for version in versions],
                "baseline": _number(baseline),
                "segments": [name.strip() for name in segments.split(",") if name.strip()],
            }
            key = sha256(repr((fields.get("key", uuid.uuid4()), body)).encode()).hexdigest()
            await visit.call(create_evaluation, model=model, body=body, idempotency_key=key)
    except RecalibError as error:
        # With the same key, what was enqueued before the error is not enqueued again.
        sent = fields.get("key")
        return await _page(visit, model, chosen, baseline, segments, key=sent, error=error)
    return redirect(visit, f"models/{model}/compare#results")


@router.get("/models/{model}/compare/{evaluation}/segments")
async def comparison_segments(visit: SignedIn, model: str, evaluation: str) -> Response:
    """Show each version on each segment of the rows."""
    facts, found = await asyncio.gather(
        visit.call(get_model, model=model),
        visit.call(get_evaluation, model=model, evaluation_id=evaluation),
    )
    rows = list(zip(*(result.segments for result in found.results), strict=True))
    metric = headline_error(rows[0][0].metrics) if rows else ""
    return page(
        visit, "segments", tab="compare", model=facts, evaluation=found, rows=rows, metric=metric
    )


def _number(version: str) -> Any:
    return int(version) if version.isdecimal() else version


@router.get("/models/{model}/compare/{evaluation}")
async def comparison_report(visit: SignedIn, model: str, evaluation: str) -> Response:
    """Return the report of an evaluation, which has a policy of its own."""
    return await visit.call(get_evaluation_report, model=model, evaluation_id=evaluation)
