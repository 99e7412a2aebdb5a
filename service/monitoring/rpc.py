"""The upload of a log over gRPC: it streams through, and is checked before the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

from service.grpc.bridge import MessageArguments
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import open_upload, to_message
from service.grpc.rpc import Context
from service.monitoring import rest
from service.monitoring.replays import upload_replay
from service.state import State

_ARGUMENTS = MessageArguments(rest.create_replay, pb.ReplayHeader)


async def create_replay(
    state: State, requests: AsyncIterator[pb.CreateReplayRequest], context: Context
) -> pb.Job:
    """Load the log of the chunks that follow the header into the monitoring of a version."""
    header, chunks = await open_upload(requests, state.settings.max_upload_bytes)
    arguments = _ARGUMENTS.of(header, context)
    key = arguments.pop("idempotency_key")
    job = await upload_replay(state.registry, **arguments, pieces=chunks, key=key)
    return to_message(pb.Job, job)
