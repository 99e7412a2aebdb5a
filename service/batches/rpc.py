"""The upload of a batch over gRPC: it streams through, and is checked before the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

from anyio import to_thread

from recalib.errors import InputError
from recalib.files import MEDIA_TYPES
from service.batches import handlers, rest
from service.batches.schemas import BatchCreate
from service.grpc.bridge import MessageArguments
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import open_upload, to_message
from service.grpc.rpc import Context
from service.http.bodies import parse_media_type, validate
from service.state import State

_ARGUMENTS = MessageArguments(rest.create_batch, pb.BatchHeader)


async def create_batch(
    state: State, requests: AsyncIterator[pb.CreateBatchRequest], context: Context
) -> pb.Job:
    """Calibrate a data set, or the rows of the chunks that follow the header."""
    registry, settings = state.registry, state.settings
    header, chunks = await open_upload(requests, settings.max_upload_bytes)
    arguments = _ARGUMENTS.of(header, context)
    model, key = arguments.pop("model"), arguments.pop("idempotency_key")
    if not header.dataset:
        media_type = parse_media_type(header.content_type, tuple(MEDIA_TYPES))
        upload = handlers.BatchUpload(**arguments)
        job = await handlers.upload_batch(registry, model, upload, media_type, chunks, key)
        return to_message(pb.Job, job)
    if await anext(chunks, None) is not None:
        found = "chunks, and a header with `dataset`"
        raise InputError("chunk", found=found, accepted="one of the two")
    fields = {name: arguments[name] for name in ("version", "format", "sets", "accepted")}
    create = validate(BatchCreate, {"dataset": header.dataset, **fields})
    job = await to_thread.run_sync(handlers.create_batch, registry, model, create, key)
    return to_message(pb.Job, job)
