"""Calibrate over REST."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, cast

import msgspec
from fastapi import APIRouter, Request, Response

from recalib.errors import InputError
from service.predict import parsing
from service.predict.handlers import LARGE, beside, calibrate, loaded_for
from service.predict.loaded import CHAMPION, Loaded
from service.predict.schemas import CalibrateAnswer, CalibrateRequest
from service.state import State
from service.transport.bodies import supported
from service.transport.description import problems

__all__ = ["respond", "router"]

router = APIRouter(prefix="/v1/models/{model}", tags=["calibrate"])

_JSON, _NPY = "application/json", "application/x-npy"

_DOCUMENTED = {
    "parameters": [
        {
            "name": "calibrator",
            "in": "query",
            "required": False,
            "description": "An alias or a version.",
            "schema": {"type": "string", "default": CHAMPION},
        },
        {
            "name": "input",
            "in": "query",
            "required": False,
            "description": "What the body holds; never guessed from its values.",
            "schema": {
                "type": "string",
                "enum": ["logits", "probabilities"],
                "default": "logits",
            },
        },
        {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {
                "schema": msgspec.json.schema_components([CalibrateRequest])[1]["CalibrateRequest"]
            },
            _NPY: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "responses": {
        "200": {
            "content": {_NPY: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
}


@router.post(
    "/calibrate",
    response_model=CalibrateAnswer,
    responses=problems(404, 409, 413, 415, 422, 500, 503),
    openapi_extra=_DOCUMENTED,
    operation_id="calibrate",
)
async def calibrate_rows(request: Request) -> Response:
    """Turn logits into calibrated probabilities."""
    answer, kind = await respond(
        request.app.state.recalib,
        request.path_params["model"],
        request.query_params,
        request.headers.get("content-type", ""),
        request.headers.get("accept", ""),
        await request.body(),
    )
    return Response(answer, media_type=kind)


async def respond(
    state: State,
    model: str,
    query: Mapping[str, str],
    content_type: str,
    accept: str,
    body: bytes,
) -> tuple[bytes, str]:
    """Return the body of the answer and its media type."""
    selector, input = query.get("calibrator", CHAMPION), query.get("input", "logits")
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    given = supported(content_type or _JSON, (_JSON, _NPY))
    wanted = _NPY if _NPY in accept else _JSON
    loaded = await loaded_for(state.calibrators, model, selector)
    kind = cast("Literal['logits', 'probabilities']", input)
    act = partial(_calibrated, state, loaded, body, kind, given, wanted)
    return (act() if len(body) <= LARGE else await beside(act)), wanted


def _calibrated(
    state: State,
    loaded: Loaded,
    body: bytes,
    input: Literal["logits", "probabilities"],
    given: str,
    wanted: str,
) -> bytes:
    decode = parsing.decode_npy if given == _NPY else parsing.decode_json
    result = calibrate(loaded, decode(body, input), input, state.settings.max_rows)
    return parsing.encode_npy(result) if wanted == _NPY else parsing.encode_json(result, loaded)
