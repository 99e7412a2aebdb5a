"""Calibrators and aliases over REST."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Path, Response

from recalib import calibrator as calibrators
from recalib import registry
from recalib.contract.calibrators import (
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    Calibrator,
    CalibratorPage,
)
from recalib.contract.jobs import Job
from recalib.contract.models import Deletion
from recalib.core.resource_names import check_alias
from recalib.registry import Model, Transaction
from service.access.authenticator import current_principal
from service.calibrators import handlers
from service.calibrators.schemas import AliasSet, CalibratorCreate
from service.calibrators.upload import check_upload
from service.deletion import delete_once
from service.http.openapi import BINARY
from service.http.parameters import Cursor, Force, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import run_once
from service.operations import BodyLimit
from service.pagination import decode_number, page_of
from service.schemas import ALIAS, MAX_VERSION, DetailsUpdate
from service.state import StateDependency

router = Router(prefix="/v1/models/{model}", tags=["calibrators"])

Version = Annotated[int, Path(ge=1, le=MAX_VERSION)]
AliasName = Annotated[str, ALIAS]
_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": BINARY}}}


@router.operation("POST", "/calibrators", "fit", limit=BodyLimit("gRPC"), status_code=202)
async def create_calibrator(
    model: str,
    body: CalibratorCreate,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Fit a calibrator, or publish an uploaded one.

    Answers with the job, whose `result` will name the version.
    """

    def find() -> Model:
        with state.registry.reading() as tx:
            return tx.models.get(model)

    def enqueue() -> Job:
        with state.registry.transaction() as tx:
            owner = tx.models.get(model)
            tx.models.hold(owner)
            scope, request = f"create_calibrator {model}", partial(act, tx, owner, body)
            return run_once(tx, idempotency_key, scope, body, 202, Job, request)

    act = handlers.request_fit
    if body.parameters is not None:
        upload = await check_upload(await to_thread.run_sync(find), body)
        act = partial(handlers.request_publication, upload=upload)
    return await to_thread.run_sync(enqueue)


@router.operation("GET", "/calibrators", "fit")
def list_calibrators(
    model: str, state: StateDependency, limit: Limit = 100, cursor: Cursor = None
) -> CalibratorPage:
    """List a model's calibrators by version."""
    after = decode_number(cursor, max_digits=9)
    with state.registry.reading() as tx:
        rows = tx.calibrators.page(tx.models.get(model), after, limit + 1)
    return page_of(CalibratorPage, rows, limit, lambda row: str(row.version), _calibrator)


@router.operation("GET", "/calibrators/{version}", "fit")
def get_calibrator(model: str, version: Version, state: StateDependency) -> Calibrator:
    """Return a calibrator's card."""
    with state.registry.reading() as tx:
        return _calibrator(tx.calibrators.get(tx.models.get(model), version))


@router.operation("PATCH", "/calibrators/{version}", "fit")
def update_calibrator(
    model: str,
    version: Version,
    body: DetailsUpdate,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Calibrator:
    """Change the description or the tags of a version."""
    with state.registry.transaction() as tx:

        def act() -> Calibrator:
            owner, actor = tx.models.get(model), current_principal().name
            return _calibrator(tx.edits.calibrator(owner, version, actor, **body.model_dump()))

        scope = f"update_calibrator {model} {version}"
        return run_once(tx, idempotency_key, scope, body, 200, Calibrator, act)


@router.operation("DELETE", "/calibrators/{version}", "fit")
def delete_calibrator(
    model: str,
    version: Version,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a version that no alias points at; its number is not used again."""

    def delete(tx: Transaction, actor: str) -> None:
        tx.deletions.calibrator(tx.models.get(model), version, actor, force=force)

    scope = f"delete_calibrator {model} {version}"
    answer = delete_once(state, scope, delete, force=force, key=idempotency_key)
    state.calibrators.refresh()
    return answer


@router.operation(
    "GET", "/calibrators/{version}/parameters", "fit", response_class=Response, responses=_FILE
)
def get_calibrator_parameters(model: str, version: Version, state: StateDependency) -> Response:
    """Download the parameter file, for `recalib apply`."""
    data = handlers.get_parameters(state.registry, model, version)
    return _download(data, f"{model}-{version}.calib")


@router.operation(
    "GET", "/calibrators/{version}/onnx", "fit", response_class=Response, responses=_FILE
)
def get_calibrator_onnx(model: str, version: Version, state: StateDependency) -> Response:
    """Download the map as an ONNX graph from `logits` to `probabilities`."""
    data = handlers.get_parameters(state.registry, model, version)
    graph = calibrators.Calibrator.from_bytes(data).to_onnx()
    return _download(graph, f"{model}-{version}.onnx")


@router.operation("GET", "/aliases", "fit")
def list_aliases(model: str, state: StateDependency) -> AliasList:
    """List a model's aliases."""
    with state.registry.reading() as tx:
        rows = tx.aliases.all(tx.models.get(model))
    return AliasList(items=[handlers.alias_of(row) for row in rows])


@router.operation("PUT", "/aliases/{alias}", "admin")
def set_alias(
    model: str,
    alias: AliasName,
    body: AliasSet,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Alias:
    """Promote or roll back: every request after the answer sees the new version."""
    check_alias("alias", alias)
    # Damaged parameters are found here, and not by requests.
    calibrators.Calibrator.from_bytes(handlers.get_parameters(state.registry, model, body.version))
    with state.registry.transaction() as tx:
        point = partial(handlers.point_alias, tx, tx.models.get(model), alias, body)
        scope = f"set_alias {model} {alias}"
        answer = run_once(tx, idempotency_key, scope, body, 200, Alias, point)
    # Other server processes follow within `refresh_seconds`.
    state.calibrators.refresh()
    return answer


@router.operation("DELETE", "/aliases/{alias}", "admin")
def delete_alias(
    model: str,
    alias: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete an alias; the champion only with `force`, since the model then has no calibrator."""

    def delete(tx: Transaction, actor: str) -> None:
        tx.aliases.delete(tx.models.get(model), alias, actor, force=force)

    scope = f"delete_alias {model} {alias}"
    answer = delete_once(state, scope, delete, force=force, key=idempotency_key, is_content=False)
    state.calibrators.refresh()
    return answer


@router.operation("GET", "/aliases/{alias}/history", "fit")
def get_alias_history(
    model: str, alias: str, state: StateDependency, limit: Limit = 100
) -> AliasHistory:
    """Return who moved an alias, when, where to and why; newest first."""
    with state.registry.reading() as tx:
        changes = tx.aliases.history(tx.models.get(model), alias, limit)
    rows = ({**vars(change), "at": change.changed_at} for change in changes)
    return AliasHistory(items=[AliasChange.model_validate(row) for row in rows])


def _download(data: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _calibrator(row: registry.CalibratorVersion) -> Calibrator:
    return Calibrator.model_validate({**vars(row), "job": row.job_id})
