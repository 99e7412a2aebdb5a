"""Health and metrics over HTTP."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from recalib.errors import UnavailableError
from service.state import StateOf
from service.transport.instruments import exposition

__all__ = ["router"]

router = APIRouter(tags=["operations"])


class Live(BaseModel):
    """The process answers."""

    live: bool = True


class Ready(BaseModel):
    """Whether requests can be served."""

    ready: bool
    registry: Literal["reachable", "unreachable"]
    loaded: int = Field(description="Aliases and versions that this process has at hand.")
    detail: str


@router.get("/livez", operation_id="livez")
async def livez() -> Live:
    """Answer while the event loop runs, whatever the database does."""
    return Live()


@router.get(
    "/readyz",
    responses={503: {"model": Ready, "description": "Nothing can be served."}},
    operation_id="readyz",
)
def readyz(state: StateOf, response: Response) -> Ready:
    """Say whether requests can be served: without the registry, those for what is loaded can."""
    loaded = len(state.calibrators)
    try:
        state.registry.check()
    except UnavailableError as error:
        response.status_code = 200 if loaded else 503
        return Ready(ready=loaded > 0, registry="unreachable", loaded=loaded, detail=str(error))
    return Ready(ready=True, registry="reachable", loaded=loaded, detail="")


@router.get("/metrics", response_class=PlainTextResponse, operation_id="metrics")
def metrics(state: StateOf) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(exposition(state.registry), media_type=CONTENT_TYPE_LATEST)
