"""gRPC service of calibration: one batch, or a stream of batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import cast

from recalib.errors import InputError
from service.calibration import Batch, CalibrationResult, Input, calibrate_batch, get_or_load
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.matrices import array_of, matrix_of
from service.grpc.messages import enum_value
from service.grpc.rpc import Context
from service.operations import BATCH, operation
from service.predict.response_formats import set_classes
from service.predict.top_k import top_classes
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.state import State


async def calibrate(
    state: State, request: pb.CalibrateRequest, context: Context
) -> pb.CalibrateResponse:
    """Turn logits into calibrated probabilities."""
    return await _respond(state, await _load(state, request), request)


@operation("predict", limit=BATCH)
async def calibrate_stream(
    state: State, requests: AsyncIterator[pb.CalibrateRequest], context: Context
) -> AsyncIterator[pb.CalibrateResponse]:
    """Calibrate a stream of batches with the version that serves when the first one arrives.

    Each message may have as many rows as one request. The number of messages is not limited;
    they are processed one at a time.
    """
    first = loaded = None
    async for request in requests:
        if first is None or loaded is None:
            first, loaded = request, await _load(state, request)
        for name in ("model", "calibrator"):
            value = getattr(request, name)
            if value and value != getattr(first, name):
                accepted = "what the first piece says, or nothing"
                raise InputError(name, found=repr(value)[:80], accepted=accepted)
        yield await _respond(state, loaded, request)


async def _load(state: State, request: pb.CalibrateRequest) -> LoadedCalibrator:
    selector = request.calibrator or CHAMPION
    return await get_or_load(state.calibrators, request.model, selector)


async def _respond(
    state: State, loaded: LoadedCalibrator, request: pb.CalibrateRequest
) -> pb.CalibrateResponse:
    encode = partial(_encode, in_bytes=bool(request.matrix.raw))
    size = request.ByteSize()
    return await calibrate_batch(state, loaded, size, partial(_decode, request), encode)


def _decode(request: pb.CalibrateRequest) -> Batch:
    input = cast("Input", enum_value("input", pb.Input.DESCRIPTOR, request.input))
    same = ("sets", "intervals", "accepted", "ids", "segment", "group")
    fields = {name: getattr(request, name) for name in same}
    return Batch(array_of(request.matrix), input, request.top_k or None, **fields)


def _encode(result: CalibrationResult, *, in_bytes: bool) -> pb.CalibrateResponse:
    loaded = result.loaded
    response = pb.CalibrateResponse(
        calibrator=pb.Calibrated(
            version=loaded.version,
            map=loaded.calibrator.card.map,
            uncalibrated=loaded.is_uncalibrated,
            adaptation=result.adaptation,
        ),
        prediction_ids=[id or "" for id in result.ids or ()],
        warnings=[result.warning] if result.warning else [],
        accepted=[] if result.accepted is None else result.accepted.tolist(),
    )
    if result.sets is not None:
        response.sets.extend(pb.ClassSet(classes=row) for row in set_classes(result.sets))
    if result.intervals is not None:
        flat = result.intervals.reshape(len(result.intervals), -1)
        response.intervals.CopyFrom(matrix_of(flat, in_bytes=in_bytes))
    if result.top_k:
        response.top_k.CopyFrom(_top_message(result, result.top_k, in_bytes))
    else:
        response.probabilities.CopyFrom(matrix_of(result.probabilities, in_bytes))
    return response


def _top_message(result: CalibrationResult, k: int, in_bytes: bool) -> pb.Top:
    classes, probabilities = top_classes(result.probabilities, k)
    flat, names = classes.reshape(-1), result.loaded.labels
    labels = [] if names is None else names[flat].tolist()
    matrix = matrix_of(probabilities, in_bytes)
    return pb.Top(classes=flat.tolist(), probabilities=matrix, labels=labels)
