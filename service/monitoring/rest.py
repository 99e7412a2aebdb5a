"""Monitoring over REST."""

from __future__ import annotations

from fastapi import APIRouter

from service.jobs.schemas import Job
from service.models.schemas import Model
from service.monitoring import handlers
from service.monitoring.schemas import MonitoringReport, MonitoringSettings
from service.state import StateOf
from service.transport.description import problems

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/models/{model}/monitoring", tags=["monitoring"], responses=problems(404, 500, 503)
)


@router.get("", operation_id="get_monitoring")
def get_monitoring(model: str, state: StateOf) -> MonitoringReport:
    """Say how a model's champion holds up: state, evidence, windows and what has happened."""
    with state.registry.reading() as tx:
        return handlers.get_monitoring(tx, model)


@router.post("/refit", status_code=202, responses=problems(409), operation_id="create_refit")
def create_refit(model: str, state: StateOf) -> Job:
    """Ask for a candidate, fitted on kept logits; it becomes the champion only on evidence."""
    with state.registry.transaction() as tx:
        return handlers.create_refit(tx, model)


@router.put("/settings", responses=problems(409, 413, 415, 422), operation_id="set_monitoring")
def set_monitoring(model: str, body: MonitoringSettings, state: StateOf) -> Model:
    """Say what of a model is watched, and how, from now on; what is left out has its default."""
    with state.registry.transaction() as tx:
        return handlers.set_monitoring(tx, model, body)
