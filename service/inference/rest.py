"""The Open Inference Protocol V2 over REST, with the binary tensor data extension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import Path, Request, Response

import recalib
from recalib.errors import ConflictError, UnavailableError
from service.calibration import Batch, CalibrationResult, calibrate_batch, get_or_load
from service.http.bodies import read_body
from service.http.fast_routes import BytesResponse, header_map, query_parameters
from service.http.openapi import BINARY, query_parameter
from service.http.routing import Router
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
from service.operations import BodyLimit
from service.readiness import readiness
from service.serving.loaded_calibrators import CHAMPION
from service.state import State, StateDependency

router = Router(prefix="/v2", tags=["inference"])

_JSON, _BYTES = "application/json", "application/octet-stream"
_LENGTH = "Inference-Header-Content-Length"
_JSON_LENGTH = _LENGTH.lower().encode()
#: FastAPI refuses versions that do not match.
_VERSION = "[1-9][0-9]{0,8}"

#: A version's number; without one, the champion answers.
Version = Annotated[str, Path(pattern=f"^{_VERSION}$", description="A version's number.")]


def _is_plain_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a body is uncompressed JSON; its length is checked after decompression."""
    return _JSON_LENGTH not in headers and b"content-encoding" not in headers


_LIMIT = BodyLimit("the binary tensor data extension", "max_body_bytes", _is_plain_json)
_DESCRIPTIONS = {
    400: "Invalid request.",
    404: "No such model or version.",
    409: "The model has no champion, and does not serve uncalibrated.",
    413: "The request exceeds a size limit.",
    415: "Unsupported content encoding.",
    500: "Server error; the log has the details.",
    503: "The database cannot be reached, and this calibrator is not loaded.",
}


def _errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    return {status: {"model": Error, "description": _DESCRIPTIONS[status]} for status in statuses}


_READINESS = _errors(404) | {503: {"model": ModelReady, "description": "Not ready."}}

_DOCUMENTED = {
    "parameters": [
        {
            "name": _LENGTH,
            "in": "header",
            "required": False,
            "description": "Length of the JSON in bytes, if binary tensor data follow it.",
            "schema": {"type": "integer"},
        },
        query_parameter(
            "input",
            "Kind of the values, unless the request has `parameters.input`.",
            enum=["logits", "probabilities"],
            default="logits",
        ),
    ],
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {"schema": {"$ref": "#/components/schemas/InferRequest"}},
            _BYTES: BINARY,
        },
    },
    "responses": {"200": {"content": {_BYTES: BINARY}}},
}


@router.operation("GET", "", "any")
def v2_server() -> ServerMetadata:
    """Return the server's name, version and extensions."""
    return ServerMetadata(
        name="recalib", version=recalib.__version__, extensions=["binary_tensor_data"]
    )


@router.operation("GET", "/health/live", "open")
async def v2_live(state: StateDependency) -> ServerLive:
    """Return whether the server is alive."""
    return ServerLive(live=True, ready=(await to_thread.run_sync(readiness, state)).ready)


@router.operation(
    "GET",
    "/health/ready",
    "open",
    responses={503: {"model": ServerReady, "description": "Not ready."}},
)
async def v2_ready(state: StateDependency, response: Response) -> ServerReady:
    """Return whether the server is ready for requests."""
    is_ready = (await to_thread.run_sync(readiness, state)).ready
    response.status_code = 200 if is_ready else 503
    return ServerReady(live=True, ready=is_ready)


@router.operation("GET", "/models/{model}", "predict", responses=_errors(404, 409, 503))
async def v2_model(model: str, state: StateDependency) -> ModelMetadata:
    """Return the inputs and outputs of a model's champion."""
    loaded = await get_or_load(state.calibrators, model, CHAMPION)
    return await to_thread.run_sync(partial(model_metadata, state, loaded, single_version=False))


@router.operation(
    "GET", "/models/{model}/versions/{version}", "predict", responses=_errors(400, 404, 503)
)
async def v2_model_version(model: str, version: Version, state: StateDependency) -> ModelMetadata:
    """Return the inputs and outputs of a version."""
    return model_metadata(
        state, await get_or_load(state.calibrators, model, version), single_version=True
    )


@router.operation("GET", "/models/{model}/ready", "predict", responses=_READINESS)
async def v2_model_ready(model: str, state: StateDependency, response: Response) -> ModelReady:
    """Return whether a model is ready: it has a champion, or serves without one."""
    return await _readiness(state, model, CHAMPION, response)


@router.operation(
    "GET",
    "/models/{model}/versions/{version}/ready",
    "predict",
    responses=_READINESS | _errors(400),
)
async def v2_model_version_ready(
    model: str, version: Version, state: StateDependency, response: Response
) -> ModelReady:
    """Return whether a version is ready."""
    return await _readiness(state, model, version, response)


@router.operation(
    "POST",
    "/models/{model}/infer",
    "predict",
    mutates=False,
    limit=_LIMIT,
    fast={},
    response_model=InferAnswer,
    responses=_errors(400, 404, 409, 413, 415, 500, 503),
    openapi_extra=_DOCUMENTED,
)
async def v2_infer(model: str, state: StateDependency, request: Request) -> Response:
    """Calibrate logits with the model's champion."""
    return await _infer(model, CHAMPION, state, request)


@router.operation(
    "POST",
    "/models/{model}/versions/{version}/infer",
    "predict",
    mutates=False,
    limit=_LIMIT,
    fast={"version": _VERSION},
    response_model=InferAnswer,
    responses=_errors(400, 404, 413, 415, 500, 503),
    openapi_extra=_DOCUMENTED,
)
async def v2_infer_version(
    model: str, version: Version, state: StateDependency, request: Request
) -> Response:
    """Calibrate logits with a version."""
    return await _infer(model, version, state, request)


async def _infer(model: str, selector: str, state: State, request: Request) -> Response:
    headers = header_map(request.scope)
    body = await read_body(request.receive)
    loaded = await get_or_load(state.calibrators, model, selector)
    default_input = query_parameters(request.scope["query_string"]).get("input", tensors.INPUT)
    encoding = headers.get(b"content-encoding", b"").decode("latin-1")
    parsed: tensors.ParsedRequest | None = None

    def decode() -> Batch:
        nonlocal parsed
        settings, length = state.settings, headers.get(_JSON_LENGTH)
        limit = settings.max_json_bytes if length is None else settings.max_body_bytes
        plain = compression.decompress(body, encoding, min(limit, settings.max_body_bytes))
        text = None if length is None else length.decode("latin-1")
        parsed = tensors.parse(plain, text, settings.max_json_bytes, default_input)
        return parsed.batch

    def encode(result: CalibrationResult) -> Response:
        assert parsed is not None  # noqa: S101  (`decode` ran before)
        return _encode(parsed, result, headers.get(b"accept-encoding", b"").decode("latin-1"))

    # The size of a compressed body is known only when it is decompressed.
    size = state.settings.max_body_bytes if encoding else len(body)
    return await calibrate_batch(state, loaded, size, decode, encode)


async def _readiness(state: State, model: str, selector: str, response: Response) -> ModelReady:
    is_ready = True
    try:
        await get_or_load(state.calibrators, model, selector)
    except (ConflictError, UnavailableError):
        response.status_code, is_ready = 503, False
    return ModelReady(name=model, ready=is_ready)


def _encode(parsed: tensors.ParsedRequest, result: CalibrationResult, accept: str) -> Response:
    content, length = tensors.answer(parsed, result)
    headers, media_type = [], _JSON
    if any(parsed.outputs.values()):  # as bytes
        headers, media_type = [(_JSON_LENGTH, b"%d" % length)], _BYTES
    encoding = compression.encoding_for(accept)
    if encoding is not None:
        content = compression.compress(content, encoding)
        headers.append((b"content-encoding", encoding.encode()))
    return BytesResponse(media_type.encode(), content, headers)
