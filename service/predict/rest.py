"""Calibrate over REST."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response

from recalib.access import Principal
from recalib.arrays import Floats
from recalib.calibrator import SMALL_BATCH
from recalib.errors import InputError, UnsupportedError
from service.http.bodies import parse_media_type
from service.http.content_negotiation import negotiate
from service.http.fast_routes import Answer, Asked, Joint, Later, through
from service.http.openapi import problems
from service.predict.handlers import LARGE, checked, get_or_load, is_checked, run_in_worker_thread
from service.predict.ids import PredictionIds, parse_share
from service.predict.loaded_calibrators import CHAMPION, LoadedCalibrator
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
from service.predict.response_formats import (
    ENCODERS,
    IDS_UNASKED,
    WITH_IDS,
    WITH_TOP,
    CalibrationResult,
)
from service.predict.schemas import CalibrateAnswer, CalibrateRequest, TopAnswer
from service.state import State

__all__ = ["CALIBRATE", "respond", "router"]

#: The template of the path.
CALIBRATE = "/v1/models/{model}/calibrate"

router = APIRouter(tags=["calibrate"])

#: Forms to choose from, by whether the likeliest classes and whether ids are asked for.
_FORMS = {
    (top, ids): tuple(
        form for form in ENCODERS if (form in WITH_TOP or not top) and (form in WITH_IDS or not ids)
    )
    for top in (False, True)
    for ids in (False, True)
}
#: Logits, checked: an array, or few of them.
_Rows = Floats | list[list[float]]
#: Numbers of a request up to which it costs less together with others.
_FEW = 64
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
        {
            "name": "ids",
            "in": "query",
            "required": False,
            "description": "The share of rows, drawn at random, that get a prediction id, by which "
            "their labels can be sent later: 0 for none, 1 for all. Unless given, answers in JSON "
            "and as .npz have ids for what the server is set to, usually all, and others none; a "
            ".npy file has no place for them.",
            "schema": {"type": "number", "minimum": 0, "maximum": 1},
        },
        {
            "name": "segment",
            "in": "query",
            "required": False,
            "description": "Where the rows come from, one of the `segments` that the model's "
            "`monitoring` declares: their calibration is watched by itself. Any other counts as "
            "none.",
            "schema": {"type": "string"},
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
            "float32; the schema's metadata has `calibrator`, as in JSON; with `ids`, a column "
            "`prediction_ids` of text. As .npz: `probabilities`, and `prediction_ids` (N,) as "
            "bytes, empty where there is none.",
            "content": {NPY: _BYTES, ARROW: _BYTES, NPZ: _BYTES},
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


def respond(state: State, asked: Asked) -> Answer | Joint | Later:
    """Answer a calibrate request."""
    model, headers = asked.path["model"], asked.headers
    caller = state.access.check(asked.header(b"authorization"), "calibrate", model)
    wanted = _wanted(
        tuple(asked.query.items()),
        headers.get(b"content-encoding", b""),
        headers.get(b"content-type", b""),
        headers.get(b"accept", b""),
    )
    share = wanted.share
    if share is None:
        share = state.settings.prediction_ids if wanted.form in IDS_UNASKED else 0.0
    loaded = state.calibrators.get(model, wanted.selector)
    if loaded is None or (share and not state.ids.has_key) or len(asked.body) > LARGE:
        act = partial(_calibrated, state, caller, asked.body, wanted, share)
        return partial(_later, state, asked, wanted.selector, share, act)
    return _calibrated(state, caller, asked.body, wanted, share, loaded)


async def _later(
    state: State,
    asked: Asked,
    selector: str,
    share: float,
    act: Callable[[LoadedCalibrator], Answer | Joint],
) -> Answer:
    """Wait for what is missing, and do large work beside the event loop."""
    loaded = await get_or_load(state.calibrators, asked.path["model"], selector)
    if share:
        await state.ids.ready()

    def whole() -> Answer:
        answer = act(loaded)
        return answer if isinstance(answer, Answer) else answer.work([answer.part])[0]

    return whole() if len(asked.body) <= LARGE else await run_in_worker_thread(whole)


class _Wanted(NamedTuple):
    """What the query and the headers say."""

    selector: str
    input: Literal["logits", "probabilities"]
    top_k: int | None
    #: Of the rows that get ids; None where it is not said.
    share: float | None
    segment: str
    #: Media types, of the body and of the answer.
    given: str
    form: str


_NAMES = frozenset(("calibrator", "ids", "input", "segment", "top_k"))


# Clients send the same few; reading them anew takes as long as calibrating a row.
@lru_cache(maxsize=256)
def _wanted(
    query: tuple[tuple[str, str], ...], encoding: bytes, content_type: bytes, accept: bytes
) -> _Wanted:
    said = dict(query)
    if not said.keys() <= _NAMES:  # one misspelt would be answered by the default
        unknown = min(said.keys() - _NAMES)
        raise InputError("query", found=repr(unknown)[:80], accepted=", ".join(sorted(_NAMES)))
    input = said.get("input", "logits")
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input)[:80], accepted="logits or probabilities")
    text, top_k = said.get("top_k"), None
    if text is not None:
        top_k = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if top_k == 0:
            raise InputError("top_k", found=repr(text[:40]), accepted="a whole number, 1 or more")
    share = parse_share(said["ids"]) if "ids" in said else None
    if encoding not in (b"", b"identity"):
        accepted = "none; inference under /v2 reads gzip"
        found = encoding.decode("latin-1")[:40]
        raise UnsupportedError("Content-Encoding", found=found, accepted=accepted)
    return _Wanted(
        said.get("calibrator", CHAMPION),
        cast("Literal['logits', 'probabilities']", input),
        top_k,
        share,
        said.get("segment", ""),
        parse_media_type(content_type.decode("latin-1") or JSON, REQUEST_TYPES),
        negotiate(accept.decode("latin-1"), _FORMS[top_k is not None, (share or 0) > 0]),
    )


def _calibrated(
    state: State,
    caller: Principal,
    body: bytes,
    wanted: _Wanted,
    share: float,
    loaded: LoadedCalibrator,
) -> Answer | Joint:
    classes = loaded.calibrator.card.classes
    if wanted.top_k is not None and wanted.top_k > classes:
        raise InputError("top_k", found=str(wanted.top_k), accepted=f"1 to {classes}, the classes")
    values: Any
    if wanted.given == JSON:
        values = decode_json(body, wanted.input)
        if isinstance(values, list):
            if is_checked(loaded, values, wanted.input, state.settings.max_rows):
                return Joint(_work(state, caller, wanted, share, loaded, len(values)), values)
            values = np.array(values, np.float32)
    elif wanted.given == NPY:
        values = decode_npy(body, wanted.input)
    else:
        values = decode_arrow(body, wanted.input, state.settings.max_body_bytes)
    logits = checked(loaded, values, wanted.input, state.settings.max_rows)
    work = _work(state, caller, wanted, share, loaded, len(logits))
    return Joint(work, logits) if logits.size <= _FEW else work.alone(logits)


def _work(
    state: State,
    caller: Principal,
    wanted: _Wanted,
    share: float,
    loaded: LoadedCalibrator,
    rows: int,
) -> _Work:
    """Return what is to be done with as many rows; they count from now on."""
    state.access.limiter.take_rows(caller, rows)
    segment = loaded.stream.segment_of(wanted.segment)
    return _Work(loaded, state.ids, share, segment, wanted.top_k, wanted.form)


class _Work(msgspec.Struct, frozen=True):
    """What is done with the logits of requests that ask for the same."""

    loaded: LoadedCalibrator
    ids: PredictionIds
    share: float
    segment: int
    top_k: int | None
    form: str

    def alone(self, logits: Floats) -> Answer:
        """Answer a request by itself, (N, K)."""
        return self._answer(*self._found(logits))

    def __call__(self, parts: list[_Rows]) -> list[Answer]:
        """Answer each part, (N, K)."""
        answers: list[Answer] = []
        classes = self.loaded.calibrator.card.classes
        while parts:
            # No more than what is computed like a request by itself.
            count = max(1, SMALL_BATCH // (classes * max(map(len, parts))))
            answers += self._answers(parts[:count])
            parts = parts[count:]
        return answers

    def _answers(self, parts: list[_Rows]) -> list[Answer]:
        probabilities, ids = self._found(_joined(parts))
        answers, start = [], 0
        for part in parts:
            rows = slice(start, start + len(part))
            answers.append(self._answer(probabilities[rows], None if ids is None else ids[rows]))
            start = rows.stop
        return answers

    def _found(self, logits: Floats) -> tuple[Floats, list[str | None] | None]:
        """Return probabilities, and ids where some are wanted."""
        probabilities = self.loaded.run(logits, self.segment)
        if not self.share:
            return probabilities, None
        ids = self.ids.made(self.loaded, logits, probabilities, self.share, self.segment)
        return probabilities, ids

    def _answer(self, probabilities: Floats, ids: list[str | None] | None) -> Answer:
        answered = CalibrationResult(probabilities, self.loaded, self.top_k, ids)
        body, rest = ENCODERS[self.form](answered)
        return Answer(body, self.form.encode(), rest=rest)


def _joined(parts: list[_Rows]) -> Floats:
    """Return all of them as one array, (N, K)."""
    if set(map(type, parts)) == {list}:
        return np.array(list(chain.from_iterable(parts)), np.float32)
    arrays = [np.array(one, np.float32) if isinstance(one, list) else one for one in parts]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
