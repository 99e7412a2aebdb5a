"""Calibrate over REST."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import msgspec
from fastapi import APIRouter, Request, Response

from recalib.errors import InputError
from service.predict.answers import WITH_TOP, WRITERS, Answered
from service.predict.handlers import LARGE, beside, calibrate, loaded_for
from service.predict.loaded import CHAMPION, Loaded
from service.predict.parsing import ARROW, JSON, NPY, READ, decode_arrow, decode_json, decode_npy
from service.predict.schemas import CalibrateAnswer, CalibrateRequest, TopAnswer
from service.state import State
from service.transport.bodies import supported
from service.transport.description import problems
from service.transport.negotiation import chosen
from service.transport.short import Answer, Asked, through

__all__ = ["CALIBRATE", "respond", "router"]

#: The template of the path.
CALIBRATE = "/v1/models/{model}/calibrate"

router = APIRouter(tags=["calibrate"])

_FORMS = tuple(WRITERS)
_BYTES = {"schema": {"type": "string", "format": "binary"}}

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
        {
            "name": "top_k",
            "in": "query",
            "required": False,
            "description": "Answer with so many of each row's likeliest classes instead of the "
            "probabilities of all: in JSON, or as an Arrow stream with the columns `classes` and "
            "`probabilities`. At most the number of classes.",
            "schema": {"type": "integer", "minimum": 1},
        },
        {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "description": "Rows of numbers: JSON, where null is a masked class; an array (N, K) of "
        "floats or integers as .npy; or an Arrow stream with a column of lists or one column a "
        "class, named as for uploads.",
        "content": {
            JSON: {
                "schema": msgspec.json.schema_components([CalibrateRequest])[1]["CalibrateRequest"]
            },
            NPY: _BYTES,
            ARROW: _BYTES,
        },
    },
    "responses": {
        "200": {
            "description": "In the form that `Accept` likes best, else JSON. As .npy: float32 "
            "(N, K). As an Arrow stream: one batch with the column `probabilities`, lists of K "
            "float32; the schema's metadata has `calibrator`, as in JSON.",
            "content": {NPY: _BYTES, ARROW: _BYTES},
        }
    },
}


@router.post(
    CALIBRATE,
    response_model=CalibrateAnswer | TopAnswer,
    responses=problems(404, 406, 409, 413, 415, 422, 500, 503),
    openapi_extra=_DOCUMENTED,
    operation_id="calibrate",
)
async def calibrate_rows(request: Request) -> Response:
    """Turn logits into calibrated probabilities."""
    return await through(request, respond)


async def respond(state: State, asked: Asked) -> Answer:
    """Answer a calibrate request."""
    wanted = _wanted(asked.query)
    given = supported(asked.header(b"content-type") or JSON, READ)
    forms = _FORMS if wanted.top_k is None else WITH_TOP
    form = chosen(asked.header(b"accept"), forms)
    loaded = await loaded_for(state.calibrators, asked.path["model"], wanted.selector)
    act = partial(_calibrated, state, loaded, asked.body, given, wanted, form)
    body = act() if len(asked.body) <= LARGE else await beside(act)
    return Answer(body, form.encode())


class _Wanted(NamedTuple):
    """What the query says."""

    selector: str
    input: Literal["logits", "probabilities"]
    top_k: int | None


def _wanted(query: Mapping[str, str]) -> _Wanted:
    input = query.get("input", "logits")
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    text, top_k = query.get("top_k"), None
    if text is not None:
        top_k = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if top_k == 0:
            raise InputError("top_k", found=repr(text[:40]), accepted="a whole number, 1 or more")
    kind = cast("Literal['logits', 'probabilities']", input)
    return _Wanted(query.get("calibrator", CHAMPION), kind, top_k)


def _calibrated(
    state: State, loaded: Loaded, body: bytes, given: str, wanted: _Wanted, form: str
) -> bytes:
    classes = loaded.calibrator.card.classes
    if wanted.top_k is not None and wanted.top_k > classes:
        raise InputError("top_k", found=str(wanted.top_k), accepted=f"1 to {classes}, the classes")
    values: Any
    if given == JSON:
        values = decode_json(body, wanted.input)
    elif given == NPY:
        values = decode_npy(body, wanted.input)
    else:
        values = decode_arrow(body, wanted.input, state.settings.max_body_bytes)
    found = calibrate(loaded, values, wanted.input, state.settings.max_rows)
    return WRITERS[form](Answered(found, loaded, wanted.top_k))
