"""Calibrate over REST."""

from __future__ import annotations

from typing import Literal, cast

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response

from recalib.errors import InputError
from service.predict import parsing
from service.predict.handlers import calibrate
from service.predict.loaded import CHAMPION
from service.predict.schemas import CalibrateAnswer
from service.state import State
from service.transport.bodies import media_type

__all__ = ["router"]

router = APIRouter(prefix="/v1/models/{model}", tags=["calibrate"])

_JSON, _NPY = "application/json", "application/x-npy"
#: Bytes of body above which a batch leaves the event loop: below, a hop to a thread costs more
#: than the work; above, other requests would wait for it.
_LARGE = 256 * 1024
#: One large batch at a time: two at once would only take turns on the interpreter lock.
_one_at_a_time = CapacityLimiter(1)

_ROWS = {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}}
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
            "schema": {"enum": ["logits", "probabilities"], "default": "logits"},
        },
        {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {
                "schema": {
                    "title": "CalibrateRequest",
                    "type": "object",
                    "properties": {"logits": _ROWS, "probabilities": _ROWS},
                }
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
    openapi_extra=_DOCUMENTED,
    operation_id="calibrate",
)
async def calibrate_rows(request: Request) -> Response:
    """Turn logits into calibrated probabilities."""
    # Path and query are read by hand: FastAPI's own reading of them costs more than the softmax.
    state: State = request.app.state.recalib
    model = request.path_params["model"]
    query = request.query_params
    selector, kind = query.get("calibrator", CHAMPION), query.get("input", "logits")
    if kind not in ("logits", "probabilities"):
        raise InputError("input", found=repr(kind), accepted="logits or probabilities")
    content = media_type(request, (_JSON, _NPY), default=_JSON)
    loaded = state.calibrators.get(model, selector)
    if loaded is None:
        loaded = await to_thread.run_sync(state.calibrators.load, model, selector)
    body = await request.body()
    wanted = _NPY if _NPY in request.headers.get("accept", "") else _JSON

    def answer() -> bytes:
        input = cast(Literal["logits", "probabilities"], kind)
        decode = parsing.decode_npy if content == _NPY else parsing.decode_json
        values = decode(body, input)
        result = calibrate(loaded, values, input, state.settings.max_rows)
        return parsing.encode_npy(result) if wanted == _NPY else parsing.encode_json(result, loaded)

    if len(body) > _LARGE:
        encoded = await to_thread.run_sync(answer, limiter=_one_at_a_time)
    else:
        encoded = answer()
    return Response(encoded, media_type=wanted)
