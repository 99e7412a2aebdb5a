"""Late labels over REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from anyio import to_thread
from fastapi import Query, Request, Response

from recalib.contract.labels import LabelOutcome, TrafficAnswer
from recalib.errors import TooLargeError
from recalib.files.json import decode
from service.calibration import get_version
from service.http.bodies import parse_media_type
from service.http.openapi import problems, request_body
from service.http.parameters import IdempotencyKey
from service.http.routing import Router
from service.labels import handlers, observations, traffic_sums
from service.labels.schemas import LabelAnswer, LateLabel, Observations, RowLabel, TrafficSums
from service.operations import BodyLimit
from service.serving.json_pieces import row_array
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State, StateDependency

router = Router(prefix="/v1/models/{model}", tags=["labels"])

_JSON = "application/json"
_decoder = msgspec.json.Decoder(list[LateLabel])
#: Other fields than the logits: largest JSON of each.
_MAX_COLUMN_BYTES = 2**20
_encoder = msgspec.json.Encoder()


class _LargeObservations(msgspec.Struct, forbid_unknown_fields=True):
    """`Observations` whose fields are not parsed yet."""

    logits: msgspec.Raw
    labels: msgspec.Raw
    times: msgspec.Raw
    segment: str = ""
    counted: bool = False
    groups: msgspec.Raw = msgspec.Raw(b"[]")


_observations = msgspec.json.Decoder(_LargeObservations)
_classes = msgspec.json.Decoder(list[RowLabel])
_times = msgspec.json.Decoder(list[float])
_groups = msgspec.json.Decoder(list[str])
_LABELS_BODY = request_body(
    {
        _JSON: {
            "schema": {
                "type": "array",
                "items": msgspec.json.schema_components([LateLabel])[1]["LateLabel"],
            }
        }
    }
)
_OBSERVATIONS_BODY = request_body(
    {_JSON: {"schema": msgspec.json.schema_components([Observations])[1]["Observations"]}}
)


@router.operation(
    "POST",
    "/labels",
    "label",
    mutates=False,
    limit=BodyLimit("several requests"),
    is_reserved=True,
    response_model=LabelAnswer,
    openapi_extra=_LABELS_BODY,
)
async def add_labels(model: str, request: Request, state: StateDependency) -> Response:
    """Add the true classes of predictions, by the ids in the responses of calibrate.

    Each label has a separate outcome. Idempotent: a repeat of the batch changes nothing.
    """
    parse_media_type(request.headers.get("content-type", "none"), (_JSON,))
    body = await request.body()
    return Response(await to_thread.run_sync(_add_labels, state, model, body), media_type=_JSON)


@router.operation(
    "POST",
    "/observations",
    "fit",
    mutates=False,
    limit=BodyLimit("several requests"),
    response_model=LabelAnswer,
    responses=problems(409),
    openapi_extra=_OBSERVATIONS_BODY,
)
async def add_observations(
    model: str,
    request: Request,
    state: StateDependency,
    calibrator: Annotated[
        str, Query(description="The version that made the predictions, or an alias.")
    ] = CHAMPION,
) -> Response:
    """Add predictions that another program made with a calibrator, and their true classes.

    They are monitored like served predictions. Rows older than `maturity_seconds` are rejected.
    Time, segment and logits identify a row: a repeat of the batch changes nothing. Of a multilabel
    model, each of `labels` is a list of the labels that the row has.
    """
    parse_media_type(request.headers.get("content-type", "none"), (_JSON,))
    body = await request.body()
    loaded = await get_version(state.calibrators, model, calibrator)
    return Response(
        await to_thread.run_sync(_add_observations, state, loaded, body), media_type=_JSON
    )


@router.operation("POST", "/traffic", "fit", mutates=False)
async def add_traffic(
    model: str,
    body: TrafficSums,
    state: StateDependency,
    calibrator: Annotated[
        str, Query(description="The version that made the predictions, or an alias.")
    ] = CHAMPION,
    idempotency_key: IdempotencyKey = None,
) -> TrafficAnswer:
    """Add the sums of predictions that another program made with a calibrator, by confidence.

    They are in the coverage of labels, as traffic of the server is. Labels of a sample of them are
    sent as observations with `counted`. Times older than `maturity_seconds` are not counted.
    """
    loaded = await get_version(state.calibrators, model, calibrator)

    return await to_thread.run_sync(traffic_sums.add_traffic, state, loaded, body, idempotency_key)


def _add_observations(state: State, loaded: LoadedCalibrator, body: bytes) -> bytes:
    rows = parse_observations(body, state.settings.max_labels)
    return _encode(*observations.add_observations(state, loaded, rows))


def parse_observations(body: bytes, max_rows: int) -> observations.ObservedRows:
    """Return `Observations` of JSON.

    Raises
    ------
    InputError: not JSON, or a value of another type.
    TooLargeError: more than `max_rows` rows of logits, or over 1 MiB of labels or times.
    """
    form = '{"logits": [[...]], "labels": [...], "times": [...]}'
    batch = decode(_observations, body, form)
    logits = row_array(bytes(batch.logits), "logits", np.float32, max_rows, form)
    labels = _column(_classes, batch.labels, "labels", form)
    times = _column(_times, batch.times, "times", form)
    groups = _column(_groups, batch.groups, "groups", form)
    return observations.ObservedRows(logits, labels, times, batch.segment, batch.counted, groups)


def _column(
    decoder: msgspec.json.Decoder[Any], text: msgspec.Raw, field: str, form: str
) -> list[Any]:
    content = bytes(text)
    if len(content) > _MAX_COLUMN_BYTES:
        accepted = f"at most {_MAX_COLUMN_BYTES} bytes of JSON"
        raise TooLargeError(field, found=f"{len(content)} bytes", accepted=accepted)
    return decode(decoder, content, form, field)


def _add_labels(state: State, model: str, body: bytes) -> bytes:
    max_labels = state.settings.max_labels
    # No valid id has a brace; a label with one counts as two.
    if len(body) > _MAX_COLUMN_BYTES and body.count(b"{") > max_labels:
        raise TooLargeError("labels", found=f"over {max_labels}", accepted=f"at most {max_labels}")
    labels = decode(_decoder, body, '[{"prediction_id": "...", "label": ...}, ...]')
    return _encode(handlers.add_labels(state, model, labels))


def _encode(outcomes: list[LabelOutcome], warnings: Sequence[str] = ()) -> bytes:
    answer: dict[str, Any] = {"counts": handlers.counts_of(outcomes), "items": outcomes}
    if warnings:
        answer["warnings"] = warnings
    return _encoder.encode(answer)
