"""The stream of events over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from anyio import to_thread

from recalib.core.access import ANONYMOUS
from service.access.authenticator import current_principal
from service.events import rest
from service.events.handlers import EventFilter, EventStream
from service.grpc.bridge import MessageArguments
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import to_message
from service.grpc.rpc import Context
from service.operations import operation
from service.state import State

#: Interval at which a stream looks for the end of the server; HTTP/2 has its own heartbeats.
_CHECK_SECONDS = 60.0
_ARGUMENTS = MessageArguments(rest.list_events, pb.ListEventsRequest)


@operation("fit", finds_model=True)
async def stream_events(
    state: State, request: pb.StreamEventsRequest, context: Context
) -> AsyncIterator[pb.Event]:
    """Send events as they happen."""
    listed = pb.ListEventsRequest(models=request.models, types=request.types, after=request.after)
    arguments = _ARGUMENTS.of(listed, context)
    selected = EventFilter(arguments["model"], arguments["type"])
    after = arguments["after"] if request.HasField("after") else None
    stream = await to_thread.run_sync(
        EventStream, state.registry, state.event_feed, selected, after
    )
    principal = current_principal()
    with state.event_feed.stream(None if principal is ANONYMOUS else principal.name):
        await context.send_initial_metadata(())
        async for events, _ in stream.steps(_CHECK_SECONDS):
            for event in events:
                yield to_message(pb.Event, event)
