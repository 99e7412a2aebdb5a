"""Late labels over REST."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from anyio import to_thread
from fastapi import Query, Request, Response

from recalib.files.json import array_of, decode_document
from service.access.authenticator import current_principal
from service.calibration import get_or_load
from service.http.bodies import parse_media_type
from service.http.openapi import problems
from service.http.routing import Router
from service.labels.handlers import add_labels, counts_of
from service.labels.observations import add_observations
from service.labels.schemas import LabelAnswer, LateLabel, Observations
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State, StateDependency

__all__ = ["router"]

router = Router(
    prefix="/v1/models/{model}", tags=["labels"], responses=problems(404, 413, 415, 422, 500, 503)
)

_JSON = "application/json"
_decoder = msgspec.json.Decoder(list[LateLabel])
_observations = msgspec.json.Decoder(Observations)
_encoder = msgspec.json.Encoder()
_LABELS_BODY: dict[str, Any] = {
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


_OBSERVATIONS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {"schema": msgspec.json.schema_components([Observations])[1]["Observations"]}
        },
    }
}


@router.post(
    "/labels",
    response_model=LabelAnswer,
    openapi_extra=_LABELS_BODY,
    operation_id="add_labels",
)
async def add(model: str, request: Request, state: StateDependency) -> Response:
    """Add the true classes of predictions, by the ids in the responses of calibrate.

    Each label has a separate outcome. Idempotent: a repeat of the batch changes nothing.
    """
    parse_media_type(request.headers.get("content-type", "none"), (_JSON,))
    body = await request.body()
    return Response(await to_thread.run_sync(_add_labels, state, model, body), media_type=_JSON)


@router.post(
    "/observations",
    response_model=LabelAnswer,
    responses=problems(409),
    openapi_extra=_OBSERVATIONS_BODY,
    operation_id="add_observations",
)
async def observe(
    model: str,
    request: Request,
    state: StateDependency,
    calibrator: Annotated[
        str, Query(description="The version that made the predictions, or an alias.")
    ] = CHAMPION,
) -> Response:
    """Add predictions that another program made with a calibrator, and their true classes.

    They are monitored like served predictions. Rows older than `maturity_seconds` are rejected.
    Time, segment and logits identify a row: a repeat of the batch changes nothing.
    """
    parse_media_type(request.headers.get("content-type", "none"), (_JSON,))
    body = await request.body()
    loaded = await get_or_load(state.calibrators, model, calibrator)
    return Response(
        await to_thread.run_sync(_add_observations, state, loaded, body), media_type=_JSON
    )


def _add_observations(state: State, loaded: LoadedCalibrator, body: bytes) -> bytes:
    form = '{"logits": [[...]], "labels": [...], "times": [...]}'
    batch = decode_document(_observations, body, form)
    logits = array_of(batch.logits, "logits", np.float32)
    state.access.limiter.take_rows(current_principal(), len(logits))
    outcomes = add_observations(
        state.registry,
        state.calibrators.traffic,
        loaded,
        logits,
        batch.labels,
        batch.times,
        batch.segment,
        max_rows=state.settings.max_labels,
    )
    return _encoder.encode({"counts": counts_of(outcomes), "items": outcomes})


def _add_labels(state: State, model: str, body: bytes) -> bytes:
    labels = decode_document(_decoder, body, '[{"prediction_id": "...", "label": ...}, ...]')
    outcomes = add_labels(
        state.registry,
        model,
        labels,
        max_labels=state.settings.max_labels,
        lifetime_seconds=state.settings.label_lifetime_seconds,
    )
    return _encoder.encode({"counts": counts_of(outcomes), "items": outcomes})
