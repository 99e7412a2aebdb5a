"""Batches over gRPC: uploads stream through, and are checked before they are acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from anyio import to_thread

from recalib.errors import InputError
from recalib.files import MEDIA_TYPES
from service.batches import handlers
from service.batches.schemas import BatchCreate
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value, page_limit, to_message, upload_chunks
from service.grpc.rpc import Context, idempotency_key
from service.http.bodies import parse_media_type
from service.state import State


class Batches:
    """`recalib.v1.Batches`."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def create_batch(
        self, requests: AsyncIterator[pb.CreateBatchRequest], context: Context
    ) -> pb.Job:
        """Calibrate a data set, or the rows of the chunks that follow the header."""
        first = await anext(requests, pb.CreateBatchRequest())
        if first.WhichOneof("part") != "header":
            found = "no header in the first message"
            raise InputError("header", found=found, accepted="a header, then chunks")
        header, key = first.header, idempotency_key(context)
        format: Any = enum_value("header.format", pb.BatchFormat.DESCRIPTOR, header.format)
        input: Any = enum_value("header.input", pb.Input.DESCRIPTOR, header.input)
        version = header.version or "champion"
        registry = self._state.registry
        chunks = upload_chunks(requests, self._state.settings.max_upload_bytes)
        if not header.dataset:
            media_type = parse_media_type(header.content_type, tuple(MEDIA_TYPES))
            job = await handlers.upload_batch(
                registry, header.model, version, format, input, media_type, chunks, key
            )
            return to_message(pb.Job, job)
        if await anext(chunks, None) is not None:
            found = "chunks, and a header with `dataset`"
            raise InputError("chunk", found=found, accepted="one of the two")
        create = BatchCreate(dataset=header.dataset, version=version, format=format)

        def act() -> pb.Job:
            with registry.transaction() as tx:
                return to_message(pb.Job, handlers.create_batch(tx, header.model, create, key))

        return await to_thread.run_sync(act)

    def get_batch(self, request: pb.GetBatchRequest, context: Context) -> pb.Batch:
        """Return the state of a batch."""
        with self._state.registry.reading() as tx:
            return to_message(pb.Batch, handlers.get_batch(tx, request.model, request.id))

    def list_batches(self, request: pb.ListBatchesRequest, context: Context) -> pb.BatchPage:
        """List a model's batches, newest first."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            page = handlers.list_batches(tx, request.model, limit, request.cursor or None)
        return to_message(pb.BatchPage, page)

    def delete_batch(self, request: pb.DeleteBatchRequest, context: Context) -> pb.Deletion:
        """Delete a batch with its file."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_batch(
                tx, request.model, request.id, force=request.force, key=key, deleted_seconds=seconds
            )
        return to_message(pb.Deletion, answer)

    async def get_batch_content(
        self, request: pb.GetBatchRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download the file of a batch."""
        _, chunks = await to_thread.run_sync(
            handlers.get_batch_content, self._state.registry, request.model, request.id
        )
        while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
            yield pb.FileChunk(data=chunk)
