"""Health and metrics over HTTP."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from recalib.contract.monitoring import Ready
from service.access.authenticator import current_principal
from service.health.registry_metrics import families, links_family, take_snapshot
from service.http.routing import Router
from service.metrics import exposition
from service.readiness import readiness
from service.state import StateDependency

router = Router(tags=["operations"])


class Live(BaseModel):
    """The event loop responds."""

    #: True.
    live: bool = True


@router.operation("GET", "/livez", "open")
async def livez() -> Live:
    """Respond while the event loop runs, even if the database is down."""
    return Live()


@router.operation(
    "GET",
    "/readyz",
    "open",
    responses={503: {"model": Ready, "description": "No request can be served."}},
)
def readyz(state: StateDependency, response: Response) -> Ready:
    """Return whether requests can be served. Loaded calibrators need no registry."""
    ready = readiness(state)
    response.status_code = 200 if ready.ready else 503
    return ready


@router.operation("GET", "/metrics", "any", is_reserved=True, response_class=PlainTextResponse)
def metrics(state: StateDependency) -> Response:
    """Return metrics in Prometheus' text format; to a key for some models, only theirs."""
    metrics = [links_family(state.settings), *families(take_snapshot(state))]
    content = exposition(metrics, current_principal().models)
    return Response(content, media_type=CONTENT_TYPE_LATEST)
