"""Monitoring over REST."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import RootModel

from recalib.contract.jobs import Job
from recalib.contract.monitoring import CandidateReport, HistoryPage, MonitoringReport
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.errors import ConflictError
from recalib.registry.job_kinds import REFIT
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue
from service.http.bodies import parse_media_type
from service.http.openapi import BINARY, request_body
from service.http.parameters import Cursor, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import EmptyRequest, run_once
from service.monitoring import handlers
from service.monitoring.replays import upload_replay
from service.monitoring.schemas import CandidateDrop
from service.operations import UPLOAD
from service.schemas import MAX_VERSION, VERSION_DESCRIPTION, Model, Text
from service.serving.loaded_calibrators import CHAMPION
from service.state import StateDependency
from service.validation_warnings import warnings_of

router = Router(prefix="/v1/models/{model}/monitoring", tags=["monitoring"])

#: The first bytes tell Parquet from CSV. Many tools know the last type only.
_MEDIA_TYPES = ("application/vnd.apache.parquet", "text/csv", "application/octet-stream")
_LOG = request_body(
    dict.fromkeys(_MEDIA_TYPES, BINARY),
    "Predictions, a Parquet or CSV file with the columns of `recalib replay`; of a multilabel "
    "model those of `recalib replay --task multilabel`.",
)


@router.operation("GET", "", "fit")
def get_monitoring(model: str, state: StateDependency) -> MonitoringReport:
    """Return the state of a model's champion: evidence, windows and events."""
    with state.registry.reading() as tx:
        return handlers.get_monitoring(tx, model, state.settings.public_url)


@router.operation("GET", "/history", "fit")
def list_monitoring_history(
    model: str,
    state: StateDependency,
    version: Annotated[
        int | None, Query(ge=1, le=MAX_VERSION, description="Only entries of this version.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> HistoryPage:
    """List the state after each cohort of predictions, with its evidence and metrics."""
    with state.registry.reading() as tx:
        return handlers.get_history(tx, model, version, limit, cursor)


@router.operation("POST", "/refit", "fit", status_code=202)
def create_refit(model: str, state: StateDependency, idempotency_key: IdempotencyKey = None) -> Job:
    """Request a candidate, fitted on sampled logits; it is promoted only on evidence."""
    with state.registry.transaction() as tx:
        owner = tx.models.get(model)
        if tx.aliases.find(owner, CHAMPION) is None:
            raise ConflictError(f"model {model!r} has no champion to refit")
        payload = {"model": owner.name, "reason": "requested"}

        def act() -> Job:
            job = enqueue(tx, REFIT, payload, model=owner, unique=f"refit {owner.id}")
            tx.audit.record(current_principal().name, "create_refit", owner.name, job.id)
            return Job.model_validate(job)

        scope = f"create_refit {model}"
        return run_once(tx, idempotency_key, scope, EmptyRequest(), 202, Job, act)


@router.operation("POST", "/replays", "admin", limit=UPLOAD, status_code=202, openapi_extra=_LOG)
async def create_replay(
    model: str,
    request: Request,
    state: StateDependency,
    version: Annotated[Text, Query(description=VERSION_DESCRIPTION)] = "champion",
    to_now: Annotated[
        bool, Query(description="Move all times of the log forward, so that it ends now.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Load a log of the past into the monitoring of a version that has no monitoring state.

    Answers with the job. Every row is checked before the answer.
    """
    parse_media_type(request.headers.get("content-type", ""), _MEDIA_TYPES)
    stream = request.stream()
    return await upload_replay(state.registry, model, version, to_now, stream, idempotency_key)


@router.operation("DELETE", "/candidates/{version}", "admin")
def drop_candidate(
    model: str,
    version: Annotated[int, Path(ge=1, le=MAX_VERSION)],
    state: StateDependency,
    reason: Annotated[Text, Query(max_length=500, description="Kept in the audit trail.")] = "",
    idempotency_key: IdempotencyKey = None,
) -> CandidateReport:
    """Drop a candidate that is compared or proven better; the champion continues to serve."""
    drop, actor = CandidateDrop(version=version, reason=reason), current_principal().name
    with state.registry.transaction() as tx:
        act = partial(handlers.drop_candidate, tx, tx.models.get(model), drop, actor)
        scope = f"drop_candidate {model}"
        return run_once(tx, idempotency_key, scope, drop, 200, CandidateReport, act)


@router.operation("PUT", "/settings", "admin")
def set_monitoring(
    model: str,
    body: MonitoringSettings,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Model:
    """Replace the monitoring settings of a model; omitted fields get their default."""
    request = RootModel[MonitoringSettings](body)
    with state.registry.transaction() as tx:

        def act() -> Model:
            owner, actor = tx.models.set_monitoring(model, body), current_principal().name
            champion = tx.aliases.find(owner, CHAMPION)
            version = None if champion is None else champion.version
            changed = Model.of(owner, warnings_of(tx, owner, version))
            tx.audit.record(actor, "set_monitoring", model, model, request.model_dump_json())
            return changed

        scope = f"set_monitoring {model}"
        return run_once(tx, idempotency_key, scope, request, 200, Model, act)
