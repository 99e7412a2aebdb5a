"""The upload of a data set over gRPC: it streams through, and is checked before the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

from recalib.errors import InputError
from recalib.files import MEDIA_TYPES
from service.datasets import handlers, rest
from service.datasets.schemas import DatasetReference
from service.grpc.bridge import MessageArguments
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import open_upload, to_message
from service.grpc.rpc import Context
from service.http.bodies import parse_media_type, validate
from service.state import State

_ARGUMENTS = MessageArguments(rest.upload_dataset, pb.UploadHeader)


async def upload_dataset(
    state: State, requests: AsyncIterator[pb.UploadDatasetRequest], context: Context
) -> pb.UploadDatasetResponse:
    """Receive validation logits with labels: a header with a URI, or one and then bytes."""
    registry, settings = state.registry, state.settings
    header, chunks = await open_upload(requests, settings.max_upload_bytes)
    arguments = _ARGUMENTS.of(header, context)
    other = "content_type" if header.uri else "digest"
    if getattr(header, other):
        found = repr(getattr(header, other))
        accepted = "`content_type` with bytes, or `uri` and `digest`"
        raise InputError(f"header.{other}", found=found, accepted=accepted)
    if header.uri:
        async for _ in chunks:
            found = "both a URI and bytes"
            raise InputError("header.uri", found=found, accepted="one of the two")
        fields = {"uri": header.uri, "digest": header.digest or None}
        reference = validate(DatasetReference, fields)
        dataset, new = await handlers.reference_dataset(
            registry, settings, **arguments, reference=reference
        )
    else:
        kind = parse_media_type(header.content_type, tuple(MEDIA_TYPES))
        dataset, new = await handlers.upload_dataset(
            registry, **arguments, kind=kind, pieces=chunks
        )
    return pb.UploadDatasetResponse(dataset=to_message(pb.Dataset, dataset), created=new)
