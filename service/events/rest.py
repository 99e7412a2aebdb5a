"""Events over REST: pages, and a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from recalib.errors import RecalibError
from service.events import handlers
from service.events.handlers import EventFilter, EventStream
from service.events.schemas import Event, EventOrder, EventPage
from service.http.entry import EXCHANGE
from service.http.openapi import problems
from service.http.page_parameters import Cursor, Limit
from service.http.routing import Router
from service.schemas.field_types import Text
from service.state import State, StateDependency

__all__ = ["router"]

router = Router(prefix="/v1", tags=["events"], responses=problems(500, 503))

#: Longest silence of a stream; proxies close connections that are silent for longer.
_HEARTBEAT_SECONDS = 15.0
#: How long a browser waits before it connects again, in milliseconds.
_RECONNECT_MILLISECONDS = 1000

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


@router.get("/events", responses=problems(422), operation_id="list_events")
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


@router.get(
    "/models/{model}/events", responses=problems(404, 422), operation_id="list_model_events"
)
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
        return handlers.list_model_events(tx, model, type, after, order, limit, cursor)


class _StreamResponse(EventSourceResponse):
    """A response that holds a place for a stream while it is sent."""

    def __init__(self, state: State, content: AsyncIterator[bytes]) -> None:
        # Proxies must pass each event on at once.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers)
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._state.event_feed.stream():
            self._state.load_shedding.streams += 1
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._state.load_shedding.streams -= 1


@router.get(
    "/events/stream",
    # FastAPI would call the endpoint of an `EventSourceResponse` after the response has begun.
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events; `data` is an `Event`, `id` its id. A comment is "
            "sent after 15 seconds without an event.",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string", "contentMediaType": "application/json"}
                }
            },
        },
        **problems(422),
    },
    operation_id="stream_events",
)
def stream_events(
    request: Request,
    state: StateDependency,
    model: _Models = [],  # noqa: B006
    type: _Types = [],  # noqa: B006
    after: Annotated[
        int | None,
        Query(
            ge=0,
            le=handlers.MAX_EVENT_ID,
            description="The id of the last event that the client has; without it, only new "
            "events are sent.",
        ),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(description="The same as `after`, and used in its place: browsers send it."),
    ] = None,
) -> StreamingResponse:
    """Send events as they happen, until the client or the server stops."""
    if last_event_id:
        after = handlers.parse_position("Last-Event-ID", last_event_id)
    stream = EventStream(state.registry, state.event_feed, EventFilter(model, type), after)
    return _StreamResponse(state, _messages(request, stream))


async def _messages(request: Request, stream: EventStream) -> AsyncIterator[bytes]:
    retry: int | None = _RECONNECT_MILLISECONDS
    async for events, position in stream.steps(_HEARTBEAT_SECONDS):
        try:
            request.scope[EXCHANGE].reauthenticate()
        except RecalibError:  # the key was revoked; the next request gets 401
            return
        for event in events:
            yield _message(event)
        if not events:
            yield format_sse_event(comment="heartbeat", id=str(position), retry=retry)
            retry = None


def _message(event: Event) -> bytes:
    return format_sse_event(data_str=event.model_dump_json(), id=str(event.id))
