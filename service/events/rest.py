"""Events over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from recalib.contract.events import EventPage
from service.events import handlers
from service.events.handlers import EventFilter, EventOrder
from service.http.parameters import Cursor, Limit
from service.http.routing import Router
from service.schemas import Text
from service.state import StateDependency

router = Router(prefix="/v1", tags=["events"])

_Models = Annotated[
    list[Text], Query(description="Names of models; without it, events of all models.")
]
_Types = Annotated[
    list[Text],
    Query(description="Types, or their first words: `job` for `job.failed`; all by default."),
]
_After = Annotated[
    int, Query(ge=0, le=handlers.MAX_EVENT_ID, description="Events with larger ids only.")
]
_Order = Annotated[EventOrder, Query(description="Which events are first.")]


@router.operation("GET", "/events", "fit", finds_model=True)
def list_events(
    state: StateDependency,
    model: _Models = [],  # noqa: B006  (FastAPI copies it)
    type: _Types = [],  # noqa: B006
    after: _After = 0,
    order: _Order = "newest",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage:
    """List events: states of monitoring, jobs, versions, promotions."""
    with state.registry.reading() as tx:
        selected = EventFilter(model, type)
        return handlers.list_events(tx, selected, after, order, limit, cursor)


@router.operation("GET", "/models/{model}/events", "fit")
def list_model_events(
    model: str,
    state: StateDependency,
    type: _Types = [],  # noqa: B006
    after: _After = 0,
    order: _Order = "newest",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage:
    """List the events of a model."""
    with state.registry.reading() as tx:
        selected = EventFilter((tx.models.get(model).name,), type)
        return handlers.list_events(tx, selected, after, order, limit, cursor)
