"""Monitoring over REST."""

from __future__ import annotations

from fastapi import APIRouter

from service.models.schemas import Model
from service.monitoring import handlers
from service.monitoring.schemas import MonitoringSettings
from service.state import StateOf
from service.transport.description import problems

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/models/{model}/monitoring", tags=["monitoring"], responses=problems(404, 500, 503)
)


@router.put("/settings", responses=problems(413, 415, 422), operation_id="set_monitoring")
def set_monitoring(model: str, body: MonitoringSettings, state: StateOf) -> Model:
    """Say what of a model is watched, and how, from now on; what is left out has its default."""
    with state.registry.transaction() as tx:
        return handlers.set_monitoring(tx, model, body)
