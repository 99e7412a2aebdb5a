"""Data sets over REST: uploads stream through, and are checked before they are acknowledged."""

from __future__ import annotations

from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response

from recalib import registry
from recalib.errors import InputError
from recalib.files import MEDIA_TYPES
from recalib.registry import BlobWriter, check_name
from service.datasets import handlers
from service.datasets.schemas import Dataset, DatasetPage, Estimate
from service.state import State, StateOf
from service.transport.bodies import supported
from service.transport.description import problems
from service.transport.pages import Cursor, Limit, decode_cursor, encode_cursor
from service.transport.times import iso

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/models/{model}/datasets", tags=["datasets"], responses=problems(500, 503)
)

#: Bytes gathered before a thread writes them: a hop costs as long as copying this much.
_BUFFER = 2**20

_Input = Annotated[
    Literal["logits", "probabilities"],
    Query(description="What the file holds; never guessed from its values."),
]
_ROWS = {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}}
_JSON_DATA = {
    "title": "Data",
    "description": "One of `logits` and `probabilities`, (N, K), and a label for each row.",
    "type": "object",
    "properties": {
        "logits": _ROWS,
        "probabilities": _ROWS,
        "labels": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["labels"],
}
_FILE = {"type": "string", "format": "binary"}
_UPLOAD_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": _JSON_DATA if kind == "application/json" else _FILE}
            for kind in MEDIA_TYPES
        },
    }
}


@router.put(
    "/{name}",
    status_code=201,
    response_model=Dataset,
    responses={
        200: {"model": Dataset, "description": "The same data was there already."},
        **problems(404, 409, 413, 415, 422),
    },
    openapi_extra=_UPLOAD_BODY,
    operation_id="upload_dataset",
)
async def upload_dataset(
    model: str,
    name: Annotated[str, Path(description="A name for the data.")],
    request: Request,
    response: Response,
    state: StateOf,
    input: _Input = "logits",
) -> Dataset:
    """Upload validation logits with labels, of any size.

    Every row is checked and measured before the answer. The same bytes under the same name again
    are a success without effect; other bytes are a conflict.
    """
    kind = supported(request.headers.get("content-type", ""), tuple(MEDIA_TYPES))
    check_name("dataset", name)
    owner = await to_thread.run_sync(_model, state, model)
    with state.registry.blobs.writer() as blob:
        await _receive(request, blob)
        dataset, new = await to_thread.run_sync(_accept, state, owner, name, kind, input, blob)
    response.status_code = 201 if new else 200
    return _wire(dataset, owner)


@router.get("", responses=problems(404, 422), operation_id="list_datasets")
def list_datasets(
    model: str, state: StateOf, limit: Limit = 100, cursor: Cursor = None
) -> DatasetPage:
    """List a model's data sets by name."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        found = tx.datasets.page(owner, decode_cursor(cursor), limit + 1)
    more = found[limit - 1].name if len(found) > limit else None
    items = [_wire(dataset, owner) for dataset in found[:limit]]
    return DatasetPage(items=items, next_cursor=encode_cursor(more))


@router.get("/{name}", responses=problems(404), operation_id="get_dataset")
def get_dataset(model: str, name: str, state: StateOf) -> Dataset:
    """Return one data set's description."""
    with state.registry.reading() as tx:
        owner = tx.models.get(model)
        return _wire(tx.datasets.get(owner, name), owner)


async def _receive(request: Request, blob: BlobWriter) -> None:
    """Write the body to `blob` as it comes, off the event loop."""
    gathered = bytearray()
    async for piece in request.stream():
        gathered += piece
        if len(gathered) >= _BUFFER:
            await to_thread.run_sync(blob.write, bytes(gathered))
            gathered.clear()
    if gathered:
        await to_thread.run_sync(blob.write, bytes(gathered))
    elif blob.size == 0:
        raise InputError("body", found="nothing", accepted="a file with logits and labels")


def _model(state: State, name: str) -> registry.Model:
    with state.registry.reading() as tx:
        return tx.models.get(name)


def _accept(
    state: State,
    model: registry.Model,
    name: str,
    kind: str,
    input: Literal["logits", "probabilities"],
    blob: BlobWriter,
) -> tuple[registry.Dataset, bool]:
    """Check what was received, keep it, and only then give it its name."""
    with blob.open_temporary() as file:
        found = handlers.survey(file, MEDIA_TYPES[kind], input, model.classes)
    size = blob.size
    digest = blob.commit()
    with state.registry.transaction() as tx:
        return handlers.register_dataset(tx, model, name, digest, size, kind, input, found)


def _wire(dataset: registry.Dataset, model: registry.Model) -> Dataset:
    return Dataset(
        name=dataset.name,
        model=model.name,
        rows=dataset.rows,
        classes=dataset.classes,
        digest=dataset.digest,
        size_bytes=dataset.size_bytes,
        input=dataset.input,
        metrics={name: Estimate(**one) for name, one in dataset.metrics.items()},
        created_at=iso(dataset.created_at),
    )
