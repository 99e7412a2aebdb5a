"""Batches over REST: uploads stream through, and are checked before they are acknowledged."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import Query, Request
from fastapi.responses import StreamingResponse

from recalib.contract.jobs import Batch, BatchPage, Job
from recalib.contract.models import Deletion
from recalib.errors import InputError, NotFoundError
from recalib.files import FORMATS, MEDIA_TYPES, Input
from recalib.files.probabilities import PROBABILITY_FORMATS, ProbabilityFormat
from recalib.registry.job_kinds import BATCH
from service.access.caller_jobs import job_of_model
from service.batches import handlers
from service.batches.schemas import ACCEPTED_DESCRIPTION, SETS_DESCRIPTION, BatchCreate
from service.deletion import delete_job
from service.http.bodies import decode_json, parse_media_type, validate
from service.http.openapi import BINARY, request_body
from service.http.parameters import Cursor, Force, IdempotencyKey, Limit
from service.http.routing import Router
from service.operations import BodyLimit
from service.pagination import decode_number, page_of
from service.schemas import VERSION_DESCRIPTION, Text
from service.state import StateDependency

router = Router(prefix="/v1/models/{model}/batches", tags=["batches"])

_JSON = "application/json"
_UPLOADS = tuple(media_type for media_type in MEDIA_TYPES if media_type != _JSON)
_ROWS = {
    "type": "object",
    "title": "BatchRows",
    "description": "Rows; the query has the other fields.",
    "anyOf": [{"required": ["logits"]}, {"required": ["probabilities"]}],
}
_BODY = request_body(
    {_JSON: {"schema": {"anyOf": [BatchCreate.model_json_schema(), _ROWS]}}}
    | dict.fromkeys(_UPLOADS, BINARY),
    "The name of a data set as JSON; or a file with the rows, whose labels are not needed. The "
    "parameters of the query are those of an upload. JSON has a size limit: use another format for "
    "larger files.",
)
_MEDIA_TYPES: dict[str, str] = {name: FORMATS[name].media_types[0] for name in PROBABILITY_FORMATS}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"content": dict.fromkeys(_MEDIA_TYPES.values(), BINARY)}
}


@router.operation(
    "POST",
    "",
    "fit",
    limit=BodyLimit("another format, such as Parquet,", "max_upload_bytes"),
    status_code=202,
    response_model=Job,
    openapi_extra=_BODY,
)
async def create_batch(
    model: str,
    request: Request,
    state: StateDependency,
    version: Annotated[Text, Query(description=VERSION_DESCRIPTION)] = "champion",
    format: Annotated[ProbabilityFormat, Query(description="Format of the result.")] = "parquet",
    input: Annotated[
        Input, Query(description="What the file holds; never guessed from its values.")
    ] = "logits",
    sets: Annotated[bool, Query(description=SETS_DESCRIPTION)] = False,
    accepted: Annotated[bool, Query(description=ACCEPTED_DESCRIPTION)] = False,
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Calibrate a file of any size: a data set, or an upload.

    Answers with the job, whose id is that of the batch. Every row of an upload is checked before
    the answer.
    """
    content_type = request.headers.get("content-type", "")
    media_type = parse_media_type(content_type, (_JSON, *_UPLOADS))
    if media_type == _JSON and not _is_upload(await request.body(), bool(request.query_params)):
        if request.query_params:
            found = ", ".join(request.query_params)[:80]
            raise InputError("query", found=found, accepted="none: JSON has all fields")
        create = validate(BatchCreate, decode_json(await request.body()))
        enqueue = handlers.create_batch
        return await to_thread.run_sync(enqueue, state.registry, model, create, idempotency_key)
    upload = handlers.BatchUpload(
        version=version, format=format, input=input, sets=sets, accepted=accepted
    )
    return await handlers.upload_batch(
        state.registry, model, upload, media_type, request.stream(), idempotency_key
    )


@router.operation("GET", "", "fit")
def list_batches(
    model: str, state: StateDependency, limit: Limit = 100, cursor: Cursor = None
) -> BatchPage:
    """List a model's batches, newest first."""
    before = decode_number(cursor)
    with state.registry.reading() as tx:
        jobs = tx.jobs.page(tx.models.get(model), None, before, limit + 1, kind=BATCH)
    return page_of(BatchPage, jobs, limit, lambda job: str(job.sequence), handlers.batch_of)


@router.operation("GET", "/{batch_id}", "fit")
def get_batch(model: str, batch_id: str, state: StateDependency) -> Batch:
    """Return the state of a batch."""
    with state.registry.reading() as tx:
        return handlers.batch_of(job_of_model(tx, model, BATCH, batch_id))


@router.operation("DELETE", "/{batch_id}", "fit")
def delete_batch(
    model: str,
    batch_id: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a batch with its file."""
    return delete_job(state, model, BATCH, batch_id, name="batch", force=force, key=idempotency_key)


@router.operation(
    "GET", "/{batch_id}/content", "fit", response_class=StreamingResponse, responses=_CONTENT
)
def get_batch_content(model: str, batch_id: str, state: StateDependency) -> StreamingResponse:
    """Download the file of a batch, in the order of its rows.

    It has `probabilities`, and `sets` and `accepted` if asked.
    """
    batch = get_batch(model, batch_id, state)
    if batch.digest is None:
        raise NotFoundError("file of batch", batch_id, hint=f"the batch is {batch.state}")
    headers = {
        "Content-Disposition": f'attachment; filename="{batch.id}.{batch.format}"',
        # A client recognises an incomplete file.
        "Content-Length": str(batch.size_bytes),
    }
    chunks = state.registry.blobs.read_chunks(batch.digest)
    return StreamingResponse(chunks, media_type=_MEDIA_TYPES[batch.format], headers=headers)


def _is_upload(content: bytes, has_query: bool) -> bool:
    """Return whether a JSON body is a file with rows, and not the request for a data set."""
    try:
        members = decode_json(content, dict[str, msgspec.Raw])
    except msgspec.ValidationError:  # no object
        return has_query
    if "dataset" in members:
        return False
    return has_query or not members.keys().isdisjoint(("logits", "probabilities"))
