"""Calibrate over gRPC: one batch, or a stream of pieces of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Literal, cast

import numpy as np

from recalib.arrays import Floats
from recalib.errors import InputError
from service.access.authenticator import current_principal
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value
from service.grpc.rpc import Context
from service.inference.tensors import DATATYPES, from_bytes
from service.predict.handlers import (
    LARGE,
    calibrate,
    calibrate_with_ids,
    get_or_load,
    run_in_worker_thread,
)
from service.predict.loaded_calibrators import CHAMPION, LoadedCalibrator
from service.predict.top_k import top_classes
from service.state import State

__all__ = ["Calibration", "array_of"]


class Calibration:
    """`recalib.v1.Calibration`."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def calibrate(
        self, request: pb.CalibrateRequest, context: Context
    ) -> pb.CalibrateResponse:
        """Turn logits into calibrated probabilities."""
        return await self._answer(await self._loaded(request), request)

    async def calibrate_stream(
        self, requests: AsyncIterator[pb.CalibrateRequest], context: Context
    ) -> AsyncIterator[pb.CalibrateResponse]:
        """Answer piece by piece, by the version that serves when the first piece comes.

        Each piece may have as many rows as one request; how many pieces there are is not limited,
        and no more than one is in work.
        """
        first = loaded = None
        async for request in requests:
            if first is None or loaded is None:
                first, loaded = request, await self._loaded(request)
            for name in ("model", "calibrator"):
                wanted = getattr(request, name)
                if wanted and wanted != getattr(first, name):
                    accepted = "what the first piece says, or nothing"
                    raise InputError(name, found=repr(wanted)[:80], accepted=accepted)
            yield await self._answer(loaded, request)

    async def _loaded(self, request: pb.CalibrateRequest) -> LoadedCalibrator:
        selector = request.calibrator or CHAMPION
        return await get_or_load(self._state.calibrators, request.model, selector)

    async def _answer(
        self, loaded: LoadedCalibrator, request: pb.CalibrateRequest
    ) -> pb.CalibrateResponse:
        if not 0 <= request.ids <= 1:
            raise InputError("ids", found=str(request.ids), accepted="a share of rows, 0 to 1")
        if request.ids:
            await self._state.ids.ready()
        act = partial(_calibrated, loaded, request, self._state)
        return act() if request.ByteSize() <= LARGE else await run_in_worker_thread(act)


def _calibrated(
    loaded: LoadedCalibrator, request: pb.CalibrateRequest, state: State
) -> pb.CalibrateResponse:
    input = cast(
        "Literal['logits', 'probabilities']",
        enum_value("input", pb.Input.DESCRIPTOR, request.input),
    )
    classes = loaded.calibrator.card.classes
    if not 0 <= request.top_k <= classes:
        accepted = f"1 to {classes}, the classes, or 0 for all in their order"
        raise InputError("top_k", found=str(request.top_k), accepted=accepted)
    given, most, share = array_of(request.matrix), state.settings.max_rows, request.ids
    state.access.limiter.take_rows(current_principal(), len(given))
    if share:
        result, ids = calibrate_with_ids(
            loaded, given, input, most, state.ids, share, request.segment
        )
    else:
        result, ids = calibrate(loaded, given, input, most, request.segment), []
    answer = pb.CalibrateResponse(
        calibrator=pb.Calibrated(version=loaded.version, map=loaded.calibrator.card.map),
        prediction_ids=[one or "" for one in ids],
    )
    in_bytes = bool(request.matrix.raw)
    if request.top_k:
        answer.top_k.CopyFrom(_likeliest(loaded, result, request.top_k, in_bytes))
    else:
        answer.probabilities.CopyFrom(_matrix(result, in_bytes))
    return answer


def _likeliest(loaded: LoadedCalibrator, result: Floats, k: int, in_bytes: bool) -> pb.Top:
    classes, probabilities = top_classes(result, k)
    flat = classes.reshape(-1)
    labels = [] if loaded.labels is None else loaded.labels[flat].tolist()
    matrix = _matrix(probabilities, in_bytes)
    return pb.Top(classes=flat.tolist(), probabilities=matrix, labels=labels)


def _matrix(values: Floats, in_bytes: bool) -> pb.Matrix:
    rows, columns = values.shape
    flat = np.ascontiguousarray(values, np.dtype("<f4")).reshape(-1)
    if in_bytes:
        return pb.Matrix(rows=rows, classes=columns, raw=flat.tobytes())
    return pb.Matrix(rows=rows, classes=columns, values=flat.tolist())


def array_of(matrix: pb.Matrix) -> Floats:
    """Return the values (N, K) of a message; `InputError` where they do not fill it."""
    rows, classes = matrix.rows, matrix.classes
    if min(rows, classes) < 1:
        raise InputError(
            "matrix", found=f"rows {rows}, classes {classes}", accepted="both at least 1"
        )
    if bool(matrix.raw) == bool(matrix.values):
        found = "both" if matrix.raw else "nothing"
        raise InputError("matrix", found=found, accepted="either raw or values")
    if not matrix.raw:
        _check_size("matrix.values", len(matrix.values), rows * classes, "numbers")
        return np.fromiter(matrix.values, np.float32, rows * classes).reshape(rows, classes)
    datatype = enum_value("matrix.datatype", pb.Datatype.DESCRIPTOR, matrix.datatype).upper()
    expected = rows * classes * DATATYPES[datatype].itemsize
    _check_size("matrix.raw", len(matrix.raw), expected, "bytes")
    return from_bytes(matrix.raw, datatype).reshape(rows, classes)


def _check_size(field: str, found: int, expected: int, what: str) -> None:
    if found != expected:
        accepted = f"{expected}, as rows, classes and datatype say"
        raise InputError(field, found=f"{found} {what}", accepted=accepted)
