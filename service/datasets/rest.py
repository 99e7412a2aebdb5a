"""Data sets over REST: uploads stream through, and are checked before they are acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from recalib.contract.datasets import Dataset, DatasetPage
from recalib.contract.models import Deletion
from recalib.core.field_types import NAME
from recalib.errors import ConflictError
from recalib.files import FORMATS, MEDIA_TYPES
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.datasets import handlers
from service.datasets.schemas import Data, DatasetReference
from service.deletion import delete_once
from service.http.bodies import decode_json, parse_media_type, validate
from service.http.disconnects import stop_on_disconnect
from service.http.openapi import BINARY, problems, request_body
from service.http.parameters import Cursor, Force, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import run_once
from service.operations import UPLOAD
from service.pagination import decode_cursor, page_of
from service.schemas import DetailsUpdate
from service.state import StateDependency

router = Router(prefix="/v1/models/{model}/datasets", tags=["datasets"])

_Input = Annotated[
    Literal["logits", "probabilities"],
    Query(description="What the file holds; never guessed from its values."),
]
_JSON = "application/json"
#: A longer JSON body is data.
_MAX_REFERENCE_BYTES = 64 << 10


def _content(data: dict[str, Any]) -> dict[str, Any]:
    """Return the content of each media type; `data` is the schema of JSON."""
    return {kind: {"schema": data} if kind == _JSON else BINARY for kind in MEDIA_TYPES}


_DATA = msgspec.json.schema_components([Data])[1]["Data"]
_REFERENCE = DatasetReference.model_json_schema()
_UPLOAD_BODY = request_body(_content({"anyOf": [_DATA, _REFERENCE]}))
_DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"content": _content({"$ref": "#/components/schemas/Data"})}
}


@router.operation(
    "PUT",
    "/{name}",
    "fit",
    limit=UPLOAD,
    status_code=201,
    response_model=Dataset,
    responses={
        200: {"model": Dataset, "description": "The same data was there already."},
        **problems(409),
    },
    openapi_extra=_UPLOAD_BODY,
)
async def upload_dataset(
    model: str,
    name: Annotated[str, NAME, Path(description="A name for the data.")],
    request: Request,
    response: Response,
    state: StateDependency,
    input: _Input = "logits",
) -> Dataset:
    """Upload validation logits with labels, of any size, or refer to files that stay elsewhere.

    Every row is checked and measured before the answer. The same bytes under the same name again
    are a success without effect; other bytes are a conflict. A JSON body with `uri` is a reference
    to files within the roots of the server.
    """
    kind = parse_media_type(request.headers.get("content-type", ""), tuple(MEDIA_TYPES))
    reference = None
    pieces: AsyncIterator[bytes] = request.stream()
    if kind == _JSON:
        reference, pieces = await _split_reference(pieces)
    if reference is None:
        dataset, new = await handlers.upload_dataset(
            state.registry, model, name, kind, input, pieces
        )
    else:
        check = handlers.reference_dataset(
            state.registry, state.settings, model, name, input, reference
        )
        dataset, new = await stop_on_disconnect(request, check)
    response.status_code = 201 if new else 200
    return dataset


@router.operation("GET", "", "fit")
def list_datasets(
    model: str, state: StateDependency, limit: Limit = 100, cursor: Cursor = None
) -> DatasetPage:
    """List a model's data sets by name."""
    after = decode_cursor(cursor)
    with state.registry.reading() as tx:
        rows = tx.datasets.page(tx.models.get(model), after, limit + 1)
    return page_of(DatasetPage, rows, limit, lambda row: row.name, Dataset.model_validate)


@router.operation("GET", "/{name}", "fit")
def get_dataset(model: str, name: str, state: StateDependency) -> Dataset:
    """Return one data set's description."""
    with state.registry.reading() as tx:
        return Dataset.model_validate(tx.datasets.get(tx.models.get(model), name))


@router.operation("PATCH", "/{name}", "fit")
def update_dataset(
    model: str,
    name: str,
    body: DetailsUpdate,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Dataset:
    """Change the description or the tags of a data set."""
    with state.registry.transaction() as tx:

        def act() -> Dataset:
            owner, actor = tx.models.get(model), current_principal().name
            row = tx.edits.dataset(owner, name, actor, **body.model_dump())
            return Dataset.model_validate(row)

        scope = f"update_dataset {model} {name}"
        return run_once(tx, idempotency_key, scope, body, 200, Dataset, act)


@router.operation("DELETE", "/{name}", "fit")
def delete_dataset(
    model: str,
    name: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a data set; versions that were fitted on it stay, and its name is free again."""

    def delete(tx: Transaction, actor: str) -> None:
        tx.deletions.dataset(tx.models.get(model), name, actor, force=force)

    scope = f"delete_dataset {model} {name}"
    return delete_once(state, scope, delete, force=force, key=idempotency_key)


@router.operation(
    "GET",
    "/{name}/content",
    "fit",
    response_class=StreamingResponse,
    responses=_DOWNLOAD | problems(409),
)
def get_dataset_content(model: str, name: str, state: StateDependency) -> StreamingResponse:
    """Download the file of a data set as it was uploaded, with its content type.

    The files of a data set by reference are not passed on: the answer is a conflict, which names
    their URI.
    """
    dataset = get_dataset(model, name, state)
    if dataset.uri is not None:
        raise ConflictError(
            f"dataset {name!r} of model {model!r} refers to {dataset.uri}; read the files there"
        )
    suffix = FORMATS[MEDIA_TYPES[dataset.media_type]].suffixes[0]
    headers = {
        "Content-Disposition": f'attachment; filename="{dataset.name}{suffix}"',
        # A client recognises an incomplete file.
        "Content-Length": str(dataset.size_bytes),
    }
    chunks = state.registry.blobs.read_chunks(dataset.digest)
    return StreamingResponse(chunks, media_type=dataset.media_type, headers=headers)


async def _split_reference(
    pieces: AsyncIterator[bytes],
) -> tuple[DatasetReference | None, AsyncIterator[bytes]]:
    """Return the reference that a JSON body is, or None and all pieces of the body."""
    head = bytearray()
    async for piece in pieces:
        head += piece
        if len(head) > _MAX_REFERENCE_BYTES:
            return None, _join(bytes(head), pieces)
    try:
        members = msgspec.json.decode(head, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = {}  # the reader of data names the error
    if "uri" not in members:
        return None, _join(bytes(head), pieces)
    return validate(DatasetReference, decode_json(bytes(head))), pieces


async def _join(head: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for piece in pieces:
        yield piece
