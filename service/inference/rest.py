"""The Open Inference Protocol V2 over REST, with the binary tensor data extension."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Request, Response

import recalib
from recalib.access import Principal
from recalib.errors import ConflictError, UnavailableError
from service.health.handlers import readiness
from service.http.fast_routes import Answer, Asked, Later, through
from service.inference import compression, tensors
from service.inference.handlers import model_metadata
from service.inference.schemas import (
    Error,
    InferAnswer,
    ModelMetadata,
    ModelReady,
    ServerLive,
    ServerMetadata,
    ServerReady,
)
from service.predict.handlers import LARGE, calibrate_with_ids, get_or_load, run_in_worker_thread
from service.predict.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State, StateDependency

__all__ = ["INFER", "INFER_BY_VERSION", "infer_rows", "router"]

#: Templates of the paths of inference.
INFER = "/v2/models/{model}/infer"
INFER_BY_VERSION = "/v2/models/{model}/versions/{version:[1-9][0-9]{0,8}}/infer"

router = APIRouter(prefix="/v2", tags=["inference"])

_JSON, _BYTES = "application/json", "application/octet-stream"
_LENGTH = "Inference-Header-Content-Length"
_SENT_LENGTH = _LENGTH.lower().encode()

#: A version's number; without one, the champion answers.
Version = Annotated[str, Path(pattern=r"^[1-9][0-9]{0,8}$", description="A version's number.")]


_MEANING = {
    400: "A request that cannot be used.",
    404: "No such model or version.",
    409: "The model has no champion yet.",
    413: "Larger than a limit.",
    415: "A content encoding that is not read.",
    500: "The service is at fault; its log says how.",
    503: "The database cannot be reached, and this calibrator is not loaded.",
}


def _errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    return {status: {"model": Error, "description": _MEANING[status]} for status in statuses}


_READINESS = _errors(404) | {503: {"model": ModelReady, "description": "It cannot be asked."}}

_DOCUMENTED = {
    "parameters": [
        {
            "name": _LENGTH,
            "in": "header",
            "required": False,
            "description": "The length of the JSON, where the bytes of tensors follow it.",
            "schema": {"type": "integer"},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {"schema": {"$ref": "#/components/schemas/InferRequest"}},
            _BYTES: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "responses": {"200": {"content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}},
}


@router.get("", operation_id="v2_server")
def server() -> ServerMetadata:
    """Say what answers, and which extensions it speaks."""
    return ServerMetadata(
        name="recalib", version=recalib.__version__, extensions=["binary_tensor_data"]
    )


@router.get("/health/live", operation_id="v2_live")
async def live(state: StateDependency) -> ServerLive:
    """Answer while the event loop runs."""
    return ServerLive(live=True, ready=(await to_thread.run_sync(readiness, state)).ready)


@router.get(
    "/health/ready",
    responses={503: {"model": ServerReady, "description": "Nothing can be served."}},
    operation_id="v2_ready",
)
async def ready(state: StateDependency, response: Response) -> ServerReady:
    """Say whether requests can be served."""
    is_ready = (await to_thread.run_sync(readiness, state)).ready
    response.status_code = 200 if is_ready else 503
    return ServerReady(live=True, ready=is_ready)


@router.get("/models/{model}", responses=_errors(404, 409, 503), operation_id="v2_model")
async def model(model: str, state: StateDependency) -> ModelMetadata:
    """Say what a model's calibrator takes and gives."""
    loaded = await get_or_load(state.calibrators, model, CHAMPION)
    return await to_thread.run_sync(partial(model_metadata, state, loaded, alone=False))


@router.get(
    "/models/{model}/versions/{version}",
    responses=_errors(400, 404, 503),
    operation_id="v2_model_version",
)
async def model_version(model: str, version: Version, state: StateDependency) -> ModelMetadata:
    """Say what one version takes and gives."""
    return model_metadata(state, await get_or_load(state.calibrators, model, version), alone=True)


@router.get("/models/{model}/ready", responses=_READINESS, operation_id="v2_model_ready")
async def model_ready(model: str, state: StateDependency, response: Response) -> ModelReady:
    """Say whether a model's calibrator can be asked: a model without a champion cannot."""
    return await _readiness(state, model, CHAMPION, response)


@router.get(
    "/models/{model}/versions/{version}/ready",
    responses=_READINESS | _errors(400),
    operation_id="v2_model_version_ready",
)
async def model_version_ready(
    model: str, version: Version, state: StateDependency, response: Response
) -> ModelReady:
    """Say whether one version can be asked."""
    return await _readiness(state, model, version, response)


@router.post(
    "/models/{model}/infer",
    response_model=InferAnswer,
    responses=_errors(400, 404, 409, 413, 415, 500, 503),
    openapi_extra=_DOCUMENTED,
    operation_id="v2_infer",
)
async def infer(model: str, request: Request) -> Response:
    """Turn logits into probabilities, by the champion."""
    return await through(request, infer_rows)


@router.post(
    "/models/{model}/versions/{version}/infer",
    response_model=InferAnswer,
    responses=_errors(400, 404, 413, 415, 500, 503),
    openapi_extra=_DOCUMENTED,
    operation_id="v2_infer_version",
)
async def infer_by_version(model: str, version: Version, request: Request) -> Response:
    """Turn logits into probabilities, by one version."""
    return await through(request, infer_rows)


def infer_rows(state: State, asked: Asked) -> Answer | Later:
    """Answer an inference request."""
    caller = state.access.check(asked.header(b"authorization"), "v2_infer", asked.path["model"])
    selector = asked.path.get("version", CHAMPION)
    loaded = state.calibrators.get(asked.path["model"], selector)
    wants_ids = tensors.IDS.encode() in asked.body or b"content-encoding" in asked.headers
    if loaded is None or (wants_ids and not state.ids.has_key) or len(asked.body) > LARGE:
        return partial(_later, state, caller, asked, selector, wants_ids)
    return _inferred(state, caller, loaded, asked)


async def _later(
    state: State, caller: Principal, asked: Asked, selector: str, wants_ids: bool
) -> Answer:
    """Wait for what is missing, and do large work beside the event loop."""
    loaded = await get_or_load(state.calibrators, asked.path["model"], selector)
    if wants_ids:
        await state.ids.ready()
    act = partial(_inferred, state, caller, loaded, asked)
    return act() if len(asked.body) <= LARGE else await run_in_worker_thread(act)


async def _readiness(state: State, model: str, selector: str, response: Response) -> ModelReady:
    is_ready = True
    try:
        await get_or_load(state.calibrators, model, selector)
    except (ConflictError, UnavailableError):
        response.status_code, is_ready = 503, False
    return ModelReady(name=model, ready=is_ready)


def _inferred(state: State, caller: Principal, loaded: LoadedCalibrator, asked: Asked) -> Answer:
    limit = state.settings.max_body_bytes
    plain = compression.decompressed(asked.body, asked.header(b"content-encoding"), limit)
    given = asked.header(_SENT_LENGTH) if _SENT_LENGTH in asked.headers else None
    question = tensors.parse(plain, given)
    share = 1.0 if tensors.IDS in question.outputs else 0.0
    most = state.settings.max_rows
    state.access.limiter.take_rows(caller, len(question.values))
    result, ids = calibrate_with_ids(
        loaded, question.values, question.input, most, state.ids, share, question.segment
    )
    content, rest = tensors.answer(question, result, ids, loaded)
    own, media_type = [], _JSON
    if any(question.outputs.values()):  # as bytes
        own, media_type = [(_SENT_LENGTH, b"%d" % len(content))], _BYTES
    encoding = compression.encoding_for(asked.header(b"accept-encoding"))
    if encoding is not None:
        content, rest = compression.compressed(b"".join((content, rest)), encoding), b""
        own.append((b"content-encoding", encoding.encode()))
    return Answer(content, media_type.encode(), tuple(own), rest)
