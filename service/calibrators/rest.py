"""Calibrators and aliases over REST."""

from __future__ import annotations

import re
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Response

from recalib import calibrator as calibrators
from recalib import registry
from recalib.errors import InputError
from service.calibrators import handlers
from service.calibrators.schemas import (
    MOST_VERSIONS,
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    AliasSet,
    Calibrator,
    CalibratorCreate,
    CalibratorPage,
)
from service.jobs.schemas import Job
from service.state import StateOf
from service.transport.description import problems
from service.transport.idempotency import IdempotencyKey, once
from service.transport.pages import Cursor, Limit, decode_cursor, encode_cursor
from service.transport.times import iso

__all__ = ["router"]

router = APIRouter(prefix="/v1/models/{model}", tags=["calibrators"], responses=problems(500, 503))

Version = Annotated[int, Path(ge=1, le=MOST_VERSIONS)]
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    }
}


@router.post(
    "/calibrators",
    status_code=202,
    response_model=Job,
    responses=problems(404, 409, 413, 415, 422),
    operation_id="create_calibrator",
)
def create_calibrator(
    model: str, body: CalibratorCreate, state: StateOf, idempotency_key: IdempotencyKey = None
) -> Response:
    """Fit a calibrator: answers with the job, whose `result` will name the version."""
    with state.registry.transaction() as tx:
        owner = tx.models.get(model)

        def act() -> Job:
            job = handlers.request_fit(tx, owner, **body.model_dump())
            return Job.of(job)

        return once(tx, idempotency_key, f"create_calibrator {model}", body, 202, act)


@router.get("/calibrators", responses=problems(404, 422), operation_id="list_calibrators")
def list_calibrators(
    model: str, state: StateOf, limit: Limit = 100, cursor: Cursor = None
) -> CalibratorPage:
    """List a model's calibrators by version."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        found = tx.calibrators.page(owner, _version_cursor(cursor), limit + 1)
    more = str(found[limit - 1].version) if len(found) > limit else None
    items = [_wire(one) for one in found[:limit]]
    return CalibratorPage(items=items, next_cursor=encode_cursor(more))


@router.get("/calibrators/{version}", responses=problems(404, 422), operation_id="get_calibrator")
def get_calibrator(model: str, version: Version, state: StateOf) -> Calibrator:
    """Return a calibrator's card."""
    with state.registry.reading() as tx:
        return _wire(tx.calibrators.get(tx.models.get(model), version))


@router.get(
    "/calibrators/{version}/parameters",
    response_class=Response,
    responses=_FILE | problems(404, 422),
    operation_id="get_calibrator_parameters",
)
def get_parameters(model: str, version: Version, state: StateOf) -> Response:
    """Download the parameter file, for `recalib apply`."""
    with state.registry.reading() as tx:
        data = tx.calibrators.parameters(tx.models.get(model), version)
    return _download(data, f"{model}-{version}.calib")


@router.get(
    "/calibrators/{version}/onnx",
    response_class=Response,
    responses=_FILE | problems(404, 422),
    operation_id="get_calibrator_onnx",
)
def get_onnx(model: str, version: Version, state: StateOf) -> Response:
    """Download the map as an ONNX graph from `logits` to `probabilities`."""
    with state.registry.reading() as tx:
        data = tx.calibrators.parameters(tx.models.get(model), version)
    graph = calibrators.Calibrator.from_bytes(data).onnx()
    return _download(graph, f"{model}-{version}.onnx")


@router.get("/aliases", responses=problems(404), operation_id="list_aliases")
def list_aliases(model: str, state: StateOf) -> AliasList:
    """List a model's aliases."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        return AliasList(items=[_wire_alias(one, owner) for one in tx.aliases.all(owner)])


@router.put("/aliases/{alias}", responses=problems(404, 413, 415, 422), operation_id="set_alias")
async def set_alias(model: str, alias: str, body: AliasSet, state: StateOf) -> Alias:
    """Promote or roll back: every request after the answer sees the new version."""

    def act() -> Alias:
        with state.registry.transaction() as tx:
            owner = tx.models.get(model)
            found = tx.aliases.set(owner, alias, body.version, "anonymous", body.reason)
            return _wire_alias(found, owner)

    answer = await to_thread.run_sync(act)
    # This process at once; the others within `refresh_seconds`.
    await to_thread.run_sync(state.calibrators.refresh)
    return answer


@router.get(
    "/aliases/{alias}/history", responses=problems(404, 422), operation_id="get_alias_history"
)
def get_alias_history(model: str, alias: str, state: StateOf, limit: Limit = 100) -> AliasHistory:
    """Return who moved an alias, when, where to and why; newest first."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        changes = tx.aliases.history(owner, alias, limit)
    return AliasHistory(
        items=[
            AliasChange(
                at=iso(one.changed_at),
                actor=one.actor,
                from_version=one.from_version,
                to_version=one.to_version,
                reason=one.reason,
            )
            for one in changes
        ]
    )


def _version_cursor(cursor: str | None) -> int | None:
    position = decode_cursor(cursor)
    if position is not None and not re.fullmatch(r"\d{1,9}", position):
        raise InputError("cursor", found="something else", accepted="next_cursor of a page")
    return None if position is None else int(position)


def _download(data: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _wire(row: registry.CalibratorVersion) -> Calibrator:
    return Calibrator(
        model=row.model,
        version=row.version,
        dataset=row.dataset,
        job=row.job_id,
        created_at=iso(row.created_at),
        card=row.card,
    )


def _wire_alias(row: registry.Alias, model: registry.Model) -> Alias:
    return Alias(
        alias=row.alias, model=model.name, version=row.version, updated_at=iso(row.changed_at)
    )
