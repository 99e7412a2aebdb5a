"""The Open Inference Protocol V2 over gRPC."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
from anyio import to_thread

import recalib
from recalib.core.arrays import Floats
from recalib.errors import ConflictError, InputError, NotFoundError, UnavailableError
from service.calibration import Batch, CalibrationResult, calibrate_batch, get_or_load
from service.grpc.generated.recalib.v2wire import inference_pb2 as pb
from service.grpc.matrices import extend, numbers_of
from service.grpc.messages import to_message
from service.grpc.rpc import Context
from service.inference import handlers
from service.inference.tensors import (
    IDS,
    OUTPUT,
    Tensor,
    batch_of,
    check_outputs,
    dtype_of,
    shape_of,
)
from service.operations import BATCH, operation
from service.readiness import readiness
from service.serving.datatypes import from_bytes
from service.serving.loaded_calibrators import CHAMPION, UNCALIBRATED, LoadedCalibrator
from service.state import State

#: The protocol's name of the service; our descriptor is in another package.
WIRE_NAME = "inference.GRPCInferenceService"

#: Fields of typed contents by datatype.
_FIELDS = {"FP32": ("fp32_contents", np.float32), "FP64": ("fp64_contents", np.float64)}


@operation("open")
async def server_live(
    state: State, request: pb.ServerLiveRequest, context: Context
) -> pb.ServerLiveResponse:
    """Return whether the server is alive."""
    return pb.ServerLiveResponse(live=True)


@operation("open")
def server_ready(
    state: State, request: pb.ServerReadyRequest, context: Context
) -> pb.ServerReadyResponse:
    """Return whether the server is ready for requests."""
    return pb.ServerReadyResponse(ready=readiness(state).ready)


@operation("predict")
async def model_ready(
    state: State, request: pb.ModelReadyRequest, context: Context
) -> pb.ModelReadyResponse:
    """Return whether a model or version is ready; an unknown one is not."""
    try:
        await _load(state, request.name, request.version)
    except (ConflictError, NotFoundError, UnavailableError):
        return pb.ModelReadyResponse(ready=False)
    return pb.ModelReadyResponse(ready=True)


@operation("any")
async def server_metadata(
    state: State, request: pb.ServerMetadataRequest, context: Context
) -> pb.ServerMetadataResponse:
    """Return the server's name and version."""
    return pb.ServerMetadataResponse(name="recalib", version=recalib.__version__)


@operation("predict")
async def model_metadata(
    state: State, request: pb.ModelMetadataRequest, context: Context
) -> pb.ModelMetadataResponse:
    """Return the inputs and outputs of a model's calibrator."""
    loaded = await _load(state, request.name, request.version)
    metadata = await to_thread.run_sync(
        partial(handlers.model_metadata, state, loaded, single_version=bool(request.version))
    )
    return to_message(pb.ModelMetadataResponse, metadata)


@operation("predict", limit=BATCH)
async def model_infer(
    state: State, request: pb.ModelInferRequest, context: Context
) -> pb.ModelInferResponse:
    """Calibrate logits."""
    loaded = await _load(state, request.model_name, request.model_version)
    decode, encode = partial(_decode, request), partial(_encode, request)
    return await calibrate_batch(state, loaded, request.ByteSize(), decode, encode)


async def _load(state: State, model: str, version: str) -> LoadedCalibrator:
    """Return the calibrator of a version, or of the champion if `version` is empty."""
    if version and not re.fullmatch(r"[1-9][0-9]*", version):
        raise InputError("model_version", found=repr(version)[:80], accepted="1, 2, ...")
    return await get_or_load(state.calibrators, model, version or CHAMPION)


def _decode(request: pb.ModelInferRequest) -> Batch:
    if len(request.inputs) != 1:  # raw contents of several tensors cannot be distinguished
        names = ", ".join(tensor.name for tensor in request.inputs) or "none"
        raise InputError("inputs", found=names[:80], accepted="one")
    check_outputs([(output.name, output.parameters) for output in request.outputs])
    parameters = {name: _choice(value) for name, value in request.parameters.items()}
    return batch_of(_values(request), parameters, {output.name for output in request.outputs})


def _choice(parameter: pb.InferParameter) -> object:
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")


def _encode(request: pb.ModelInferRequest, result: CalibrationResult) -> pb.ModelInferResponse:
    loaded = result.loaded
    response = pb.ModelInferResponse(model_name=loaded.model, id=request.id)
    if loaded.is_uncalibrated:
        response.parameters[UNCALIBRATED].bool_param = True
    else:
        response.model_version = str(loaded.version)
    if result.adaptation is not None:
        response.parameters["adaptation"].int64_param = result.adaptation
    for name in [output.name for output in request.outputs] or [OUTPUT]:
        tensor = Tensor.of(name, result)
        output = response.outputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        if request.raw_input_contents:
            response.raw_output_contents.append(bytes(tensor.to_bytes()))
        elif name == IDS:
            output.contents.bytes_contents.extend(text.encode() for text in tensor.values)
        else:
            extend(getattr(output.contents, f"{tensor.datatype.lower()}_contents"), tensor.values)
    return response


def _values(request: pb.ModelInferRequest) -> Floats:
    """Return the input (N, K), from raw bytes or typed contents."""
    tensor = request.inputs[0]
    dtype = dtype_of(tensor.datatype)
    rows, classes = shape_of(tensor.shape)
    if not request.raw_input_contents:
        return _read_contents(tensor, rows, classes)
    if tensor.contents.ByteSize():  # may be present and empty: MLServer's client sends it so
        raise InputError(
            "inputs[0].contents", found="contents and raw_input_contents", accepted="one of them"
        )
    raw = request.raw_input_contents
    expected = rows * classes * dtype.itemsize
    if len(raw) != 1 or len(raw[0]) != expected:
        found = f"{len(raw)} tensors, of {len(raw[0])} bytes"
        accepted = f"one of {expected} bytes, as shape and datatype say"
        raise InputError("raw_input_contents", found=found, accepted=accepted)
    return from_bytes(raw[0], tensor.datatype).reshape(rows, classes)


def _read_contents(
    tensor: pb.ModelInferRequest.InferInputTensor, rows: int, classes: int
) -> Floats:
    if tensor.datatype not in _FIELDS:
        accepted = f"{', '.join(_FIELDS)} in contents; {tensor.datatype} in raw_input_contents"
        raise InputError("inputs[0].datatype", found=tensor.datatype, accepted=accepted)
    name, dtype = _FIELDS[tensor.datatype]
    values = getattr(tensor.contents, name)
    if len(values) != rows * classes:
        accepted = f"{rows * classes}, as the shape [{rows}, {classes}] says"
        raise InputError(
            f"inputs[0].contents.{name}", found=f"{len(values)} numbers", accepted=accepted
        )
    return numbers_of(values, dtype).reshape(rows, classes)
