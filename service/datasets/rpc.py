"""Data sets over gRPC: uploads stream through, and are checked before they are acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, cast

from anyio import to_thread

from recalib.errors import InputError
from recalib.files import MEDIA_TYPES
from service.datasets import handlers
from service.datasets.schemas import DatasetReference
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import details_of, enum_value, page_limit, to_message, upload_chunks
from service.grpc.rpc import Context, idempotency_key
from service.http.bodies import parse_media_type
from service.schemas.details import DetailsUpdate
from service.state import State


class Datasets:
    """`recalib.v1.Datasets`."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def upload_dataset(
        self, requests: AsyncIterator[pb.UploadDatasetRequest], context: Context
    ) -> pb.UploadDatasetResponse:
        """Receive validation logits with labels: a header with a URI, or one and then bytes."""
        first = await anext(requests, pb.UploadDatasetRequest())
        if first.WhichOneof("part") != "header":
            raise InputError(
                "header", found="no header in the first message", accepted="a header, then chunks"
            )
        header = first.header
        registry, settings = self._state.registry, self._state.settings
        input = cast(
            "Literal['logits', 'probabilities']",
            enum_value("header.input", pb.Input.DESCRIPTOR, header.input),
        )
        chunks = upload_chunks(requests, settings.max_upload_bytes)
        other = "content_type" if header.uri else "digest"
        if getattr(header, other):
            accepted = "`content_type` with bytes, or `uri` and `digest`"
            raise InputError(
                f"header.{other}", found=repr(getattr(header, other)), accepted=accepted
            )
        if header.uri:
            async for _ in chunks:
                found = "both a URI and bytes"
                raise InputError("header.uri", found=found, accepted="one of the two")
            reference = DatasetReference(uri=header.uri, digest=header.digest or None)
            dataset, new = await handlers.reference_dataset(
                registry, settings, header.model, header.name, input, reference
            )
        else:
            kind = parse_media_type(header.content_type, tuple(MEDIA_TYPES))
            dataset, new = await handlers.upload_dataset(
                registry, header.model, header.name, kind, input, chunks
            )
        return pb.UploadDatasetResponse(dataset=to_message(pb.Dataset, dataset), created=new)

    def get_dataset(self, request: pb.GetDatasetRequest, context: Context) -> pb.Dataset:
        """Return one data set's description."""
        with self._state.registry.reading() as tx:
            return to_message(pb.Dataset, handlers.get_dataset(tx, request.model, request.name))

    async def get_dataset_content(
        self, request: pb.GetDatasetRequest, context: Context
    ) -> AsyncIterator[pb.FileChunk]:
        """Download the file of a data set as it was uploaded."""
        _, chunks = await to_thread.run_sync(
            handlers.get_dataset_content, self._state.registry, request.model, request.name
        )
        while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
            yield pb.FileChunk(data=chunk)

    def update_dataset(self, request: pb.UpdateDatasetRequest, context: Context) -> pb.Dataset:
        """Change the description or the tags of a data set."""
        change, key = DetailsUpdate.model_validate(details_of(request)), idempotency_key(context)
        with self._state.registry.transaction() as tx:
            answer = handlers.update_dataset(tx, request.model, request.name, change, key)
        return to_message(pb.Dataset, answer)

    def delete_dataset(self, request: pb.DeleteDatasetRequest, context: Context) -> pb.Deletion:
        """Delete a data set."""
        key, seconds = idempotency_key(context), self._state.settings.deleted_seconds
        with self._state.registry.transaction() as tx:
            answer = handlers.delete_dataset(
                tx,
                request.model,
                request.name,
                force=request.force,
                key=key,
                deleted_seconds=seconds,
            )
        return to_message(pb.Deletion, answer)

    def list_datasets(self, request: pb.ListDatasetsRequest, context: Context) -> pb.DatasetPage:
        """List a model's data sets by name."""
        limit = page_limit(request.limit)
        with self._state.registry.reading() as tx:
            page = handlers.list_datasets(tx, request.model, limit, request.cursor or None)
        return to_message(pb.DatasetPage, page)
