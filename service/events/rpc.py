"""Events over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from anyio import to_thread

from recalib.errors import InputError
from service.events import handlers
from service.events.handlers import EventFilter, EventStream
from service.events.schemas import EventOrder
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value, page_limit, to_message
from service.grpc.rpc import Context
from service.state import State

#: Interval at which a stream looks for the end of the server; HTTP/2 has its own heartbeats.
_CHECK_SECONDS = 60.0


class Events:
    """`recalib.v1.Events`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def list_events(self, request: pb.ListEventsRequest, context: Context) -> pb.EventPage:
        """List events of all models, or of some."""
        selected = EventFilter(request.models, request.types)
        limit, after = page_limit(request.limit), _position(request.after)
        with self._state.registry.reading() as tx:
            page = handlers.list_events(
                tx, selected, after, _order(request.order), limit, request.cursor or None
            )
        return to_message(pb.EventPage, page)

    def list_model_events(
        self, request: pb.ListModelEventsRequest, context: Context
    ) -> pb.EventPage:
        """List the events of a model."""
        limit, after = page_limit(request.limit), _position(request.after)
        with self._state.registry.reading() as tx:
            page = handlers.list_model_events(
                tx,
                request.model,
                request.types,
                after,
                _order(request.order),
                limit,
                request.cursor or None,
            )
        return to_message(pb.EventPage, page)

    async def stream_events(
        self, request: pb.StreamEventsRequest, context: Context
    ) -> AsyncIterator[pb.Event]:
        """Send events as they happen."""
        state = self._state
        selected = EventFilter(request.models, request.types)
        after = _position(request.after) if request.HasField("after") else None
        stream = await to_thread.run_sync(
            EventStream, state.registry, state.event_feed, selected, after
        )
        with state.event_feed.stream():
            await context.send_initial_metadata(())
            async for events, _ in stream.steps(_CHECK_SECONDS):
                for event in events:
                    yield to_message(pb.Event, event)


def _order(number: int) -> EventOrder:
    return cast("EventOrder", enum_value("order", pb.EventOrder.DESCRIPTOR, number))


def _position(after: int) -> int:
    if after < 0:
        raise InputError("after", found=str(after), accepted="the id of an event")
    return after
