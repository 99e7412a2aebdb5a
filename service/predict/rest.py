"""REST route of calibration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple, cast

import msgspec
from fastapi import Request, Response

from recalib.errors import InputError, UnsupportedError
from service.calibration import Batch, CalibrationResult, Input, calibrate_batch, get_or_load
from service.http.bodies import parse_media_type, read_body
from service.http.content_negotiation import negotiate
from service.http.fast_routes import BytesResponse, header_map, query_parameters
from service.http.openapi import BINARY, problems, query_parameter
from service.http.routing import Router
from service.operations import BodyLimit
from service.predict.request_formats import (
    ARROW,
    JSON,
    NPY,
    NPZ,
    REQUEST_TYPES,
    decode_arrow,
    decode_json,
    decode_npy,
)
from service.predict.response_formats import ENCODERS, IDS_BY_DEFAULT, WITH_IDS, WITH_SETS, WITH_TOP
from service.predict.schemas import CalibrateAnswer, CalibrateRequest, TopAnswer
from service.serving.ids import parse_share
from service.serving.loaded_calibrators import CHAMPION, UNCALIBRATED, LoadedCalibrator
from service.state import State, StateDependency

router = Router(tags=["calibrate"])

_WITH = (WITH_TOP, WITH_IDS, WITH_SETS)

#: Media types to choose from, by whether the most likely classes, ids and sets are requested.
_RESPONSE_TYPES = {
    wanted: tuple(
        media_type
        for media_type in ENCODERS
        if all(media_type in of for of, is_wanted in zip(_WITH, wanted, strict=True) if is_wanted)
    )
    for wanted in product((False, True), repeat=3)
}
_FLAG = {"type": "boolean", "default": False}

_DOCUMENTED: dict[str, Any] = {
    "parameters": [
        query_parameter("calibrator", "An alias or a version.", type="string", default=CHAMPION),
        query_parameter(
            "input",
            "What the body holds; never inferred from its values.",
            type="string",
            enum=["logits", "probabilities"],
            default="logits",
        ),
        query_parameter(
            "top_k",
            "Number of most likely classes to return for each row, instead of the probabilities of "
            "all classes: in JSON, or as an Arrow stream with the columns `classes` and "
            "`probabilities`. At most the number of classes; none for multilabel models.",
            type="integer",
            minimum=1,
        ),
        query_parameter(
            "sets",
            "Whether to return the prediction set of each row, too: in JSON and as an Arrow stream "
            "the numbers of its classes, in .npz an array (N, K) of booleans. Only of a version "
            "that was fitted with `sets`.",
            **_FLAG,
        ),
        query_parameter(
            "intervals",
            "Whether to return the Venn-Abers interval [p0, p1] of each probability, too, "
            "(N, K, 2). Only of a version of the map venn_abers, without segments.",
            **_FLAG,
        ),
        query_parameter(
            "accepted",
            "Whether to return which rows are accepted, too, (N,): those whose confidence reaches "
            "the threshold of rejection. Only of a version that was fitted with `max_risk`.",
            **_FLAG,
        ),
        query_parameter(
            "ids",
            "The share of rows, drawn at random, that get a prediction id: 0 for none, 1 for all. "
            "Labels refer to predictions by these ids. The default is the server's setting, "
            "usually 1, for responses in JSON and .npz, and 0 for other formats and multilabel "
            "models, of which only rows with ids are counted; .npy cannot hold ids.",
            type="number",
            minimum=0,
            maximum=1,
        ),
        query_parameter(
            "segment",
            "The segment of the rows, one of the `segments` in the model's `monitoring`: its "
            "calibration is monitored separately. A version that was fitted with segments has "
            "offsets for it. An unknown segment counts as none.",
            type="string",
        ),
        query_parameter(
            "group",
            "The group of the rows, such as their session: rows of a group may depend on each "
            "other, and count once in monitoring. Only with ids.",
            type="string",
        ),
    ],
    "requestBody": {
        "required": True,
        "description": "Rows of numbers: JSON, where null is a masked class; an array (N, K) of "
        "floats or integers as .npy; or an Arrow stream with a column of lists or one column per "
        "class, named as in uploads; columns with the names of the classes may have any order.",
        "content": {
            JSON: {
                "schema": msgspec.json.schema_components([CalibrateRequest])[1]["CalibrateRequest"]
            },
            NPY: BINARY,
            ARROW: BINARY,
        },
    },
    "responses": {
        "200": {
            "description": "In the format that `Accept` prefers; the default is JSON. As .npy: "
            "float32 (N, K). As an Arrow stream: one batch with the column `probabilities`, "
            "lists of K float32; the schema's metadata has `calibrator`, as in JSON; with `ids`, "
            "a column `prediction_ids` of text, with `sets` or `intervals` a column of lists, and "
            "with `accepted` one of truth values. As .npz: `probabilities`, `prediction_ids` (N,) "
            "as bytes, empty for rows without an id, and with `sets`, `intervals` or "
            "`accepted` an array of that name. The header `Recalib-Calibrator:"
            " uncalibrated` marks the answer of a model without a champion; `Recalib-Adaptation` "
            "is the number of the state that adapted it to label shift; `Recalib-Warning` says why "
            "rows may not be logits.",
            "content": dict.fromkeys((NPY, ARROW, NPZ), BINARY),
        }
    },
}


@router.operation(
    "POST",
    "/v1/models/{model}/calibrate",
    "predict",
    mutates=False,
    limit=BodyLimit("application/x-npy or an Arrow stream", "max_body_bytes"),
    fast={},
    response_model=CalibrateAnswer | TopAnswer,
    responses=problems(406, 409),
    openapi_extra=_DOCUMENTED,
)
async def calibrate(model: str, state: StateDependency, request: Request) -> Response:
    """Turn logits into calibrated probabilities."""
    scope, headers = request.scope, header_map(request.scope)
    options = _options(
        scope["query_string"],
        headers.get(b"content-encoding", b""),
        headers.get(b"content-type", b""),
        headers.get(b"accept", b""),
    )
    body = await read_body(request.receive)
    loaded = await get_or_load(state.calibrators, model, options.selector)
    decode = partial(_decode, state, loaded, body, options)
    # Arrow can be compressed.
    size = state.settings.max_body_bytes if options.request_type == ARROW else len(body)
    return await calibrate_batch(state, loaded, size, decode, options.encode)


_UNCALIBRATED_HEADER = (b"recalib-calibrator", UNCALIBRATED.encode())


class _Options(NamedTuple):
    """Query parameters and headers, parsed."""

    selector: str
    input: Input
    top_k: int | None
    sets: bool
    intervals: bool
    accepted: bool
    #: Share of rows that get ids; None: not in the query.
    ids: float | None
    segment: str
    group: str
    request_type: str
    response_type: str

    def encode(self, result: CalibrationResult) -> Response:
        """Return the response in the negotiated media type."""
        headers = [_UNCALIBRATED_HEADER] if result.loaded.is_uncalibrated else []
        if result.adaptation is not None:
            headers.append((b"recalib-adaptation", b"%d" % result.adaptation))
        if result.warning:
            headers.append((b"recalib-warning", result.warning.encode("ascii", "replace")))
        content = ENCODERS[self.response_type](result)
        return BytesResponse(self.response_type.encode(), content, headers)


_PARAMETERS = frozenset(parameter["name"] for parameter in _DOCUMENTED["parameters"])


# Cached: clients send the same few, and parsing them takes as long as calibrating a row.
@lru_cache(maxsize=256)
def _options(query: bytes, encoding: bytes, content_type: bytes, accept: bytes) -> _Options:
    parameters = query_parameters(query)
    if not parameters.keys() <= _PARAMETERS:  # a misspelt one would be ignored
        unknown = min(parameters.keys() - _PARAMETERS)
        accepted = ", ".join(sorted(_PARAMETERS))
        raise InputError("query", found=repr(unknown)[:80], accepted=accepted)
    input = parameters.get("input", "logits")
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input)[:80], accepted="logits or probabilities")
    text, top_k = parameters.get("top_k"), None
    if text is not None:
        top_k = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if top_k == 0:
            raise InputError("top_k", found=repr(text[:40]), accepted="a whole number, 1 or more")
    sets, intervals, accepts = (
        _truth_value(parameters, name) for name in ("sets", "intervals", "accepted")
    )
    ids = parse_share(parameters["ids"]) if "ids" in parameters else None
    if encoding not in (b"", b"identity"):
        accepted = "none; inference under /v2 reads gzip"
        found = encoding.decode("latin-1")[:40]
        raise UnsupportedError("Content-Encoding", found=found, accepted=accepted)
    return _Options(
        parameters.get("calibrator", CHAMPION),
        cast("Input", input),
        top_k,
        sets,
        intervals,
        accepts,
        ids,
        parameters.get("segment", ""),
        parameters.get("group", ""),
        parse_media_type(content_type.decode("latin-1") or JSON, REQUEST_TYPES),
        negotiate(
            accept.decode("latin-1"),
            _RESPONSE_TYPES[top_k is not None, (ids or 0) > 0, sets or intervals or accepts],
        ),
    )


def _truth_value(parameters: Mapping[str, str], name: str) -> bool:
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise InputError(name, found=repr(value)[:80], accepted="true or false")
    return value == "true"


def _decode(state: State, loaded: LoadedCalibrator, body: bytes, options: _Options) -> Batch:
    values: Any
    if options.request_type == JSON:
        values = decode_json(body, options.input, state.settings.max_rows)
    elif options.request_type == NPY:
        values = decode_npy(body, options.input)
    else:
        max_bytes, names = state.settings.max_body_bytes, loaded.calibrator.card.labels
        values = decode_arrow(body, options.input, max_bytes, names)
    ids = options.ids
    if ids is None:
        by_default = options.response_type in IDS_BY_DEFAULT and not loaded.calibrator.is_multilabel
        ids = state.settings.prediction_ids if by_default else 0.0
    return Batch(
        values,
        options.input,
        options.top_k,
        options.sets,
        options.intervals,
        options.accepted,
        ids,
        options.segment,
        options.group,
    )
