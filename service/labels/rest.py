"""Late labels over REST."""

from __future__ import annotations

from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from recalib.files.json import decoded
from service.labels.handlers import add_labels, counts_of
from service.labels.schemas import LabelAnswer, LateLabel
from service.state import State, StateOf
from service.transport.bodies import supported
from service.transport.description import problems

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/models/{model}", tags=["labels"], responses=problems(404, 413, 415, 422, 500, 503)
)

_JSON = "application/json"
_decoder = msgspec.json.Decoder(list[LateLabel])
_encoder = msgspec.json.Encoder()
_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {
                "schema": {
                    "type": "array",
                    "items": msgspec.json.schema_components([LateLabel])[1]["LateLabel"],
                }
            }
        },
    }
}


@router.post(
    "/labels",
    response_model=LabelAnswer,
    openapi_extra=_DOCUMENTED,
    operation_id="add_labels",
)
async def add(model: str, request: Request, state: StateOf) -> Response:
    """Say what the true class of predictions was, by the ids that calibrate answered with.

    Each label has an outcome of its own; sending a batch again changes nothing.
    """
    supported(request.headers.get("content-type", "none"), (_JSON,))
    body = await request.body()
    return Response(await to_thread.run_sync(_added, state, model, body), media_type=_JSON)


def _added(state: State, model: str, body: bytes) -> bytes:
    labels = decoded(_decoder, body, '[{"prediction_id": "...", "label": ...}, ...]')
    outcomes = add_labels(
        state.registry,
        model,
        labels,
        most=state.settings.max_labels,
        lifetime_seconds=state.settings.label_lifetime_seconds,
    )
    return _encoder.encode({"counts": counts_of(outcomes), "items": outcomes})
