"""Tensors of the Open Inference Protocol V2, in JSON and in the binary tensor data extension.

A request is JSON. With the extension, the header `Inference-Header-Content-Length` gives the length
of the JSON, and the tensors' bytes follow it, little-endian and in row order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from recalib.core.arrays import Floats
from recalib.errors import InputError, TooLargeError
from recalib.files.json import decode
from service.calibration import Batch, CalibrationResult
from service.serving.datatypes import DATATYPES, MAX_DIMENSION, from_bytes
from service.serving.json_pieces import PIECE_BYTES, flat_array, fragment, row_array
from service.serving.loaded_calibrators import UNCALIBRATED

#: The names of a calibrator's tensors.
INPUT, OUTPUT = "logits", "probabilities"
#: Outputs that are returned only on request.
IDS, SETS, INTERVALS, ACCEPTED = "prediction_ids", "sets", "intervals", "accepted"
#: The datatype of each output.
OUTPUTS = {OUTPUT: "FP32", IDS: "BYTES", SETS: "BOOL", INTERVALS: "FP32", ACCEPTED: "BOOL"}
_DTYPES = {"FP32": np.dtype("<f4"), "BOOL": np.dtype(bool)}

_IN_JSON = ("FP16", "FP32", "FP64")


class InputTensor(msgspec.Struct):
    """A tensor of any name; without `data`, its bytes follow the JSON."""

    #: Any name.
    name: str
    #: Length of each axis: [N, K].
    shape: list[int]
    #: Type of its numbers, such as `FP32`.
    datatype: str
    #: Parameters of the protocol.
    parameters: dict[str, Any] = {}
    #: The values, in row order.
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RequestedOutput(msgspec.Struct):
    """An output that the client requests; without `inputs`, an output of another model."""

    #: Name of the output.
    name: str
    #: Parameters of the protocol.
    parameters: dict[str, Any] = {}
    #: Of an output of another model: length of each axis.
    shape: list[int] | None = None
    #: Of an output of another model: type of its numbers.
    datatype: str | None = None
    #: Of an output of another model: its values.
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class InferRequest(msgspec.Struct):
    """A V2 inference request; unknown fields and parameters are ignored.

    Without `inputs` it is the response of another model, whose `outputs` are calibrated: a step of
    an InferenceGraph gets the response of the step before.
    """

    #: The tensor to calibrate.
    inputs: list[InputTensor] = []
    #: Returned with the answer.
    id: str | None = None
    #: Parameters of the protocol, and `input`, `segment` and `group`.
    parameters: dict[str, Any] = {}
    #: The requested outputs; by default all.
    outputs: list[RequestedOutput] = []


class _LargeTensor(msgspec.Struct):
    """An `InputTensor` before its values are parsed."""

    name: msgspec.Raw
    shape: msgspec.Raw
    datatype: msgspec.Raw
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _LargeRequest(msgspec.Struct):
    """An `InferRequest` before its values are parsed, with exactly one tensor."""

    inputs: tuple[_LargeTensor]
    id: msgspec.Raw = msgspec.Raw(b"null")
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")


class _LargeResponse(msgspec.Struct):
    """A response of another model before its values are parsed, with exactly one output."""

    outputs: tuple[_LargeTensor]
    id: msgspec.Raw = msgspec.Raw(b"null")
    inputs: msgspec.Raw = msgspec.Raw(b"[]")


#: Largest JSON that is parsed with one call, and largest JSON besides the numbers.
_MAX_WHOLE_BYTES = PIECE_BYTES
_decoder = msgspec.json.Decoder(InferRequest)
_large_decoder = msgspec.json.Decoder(_LargeRequest)
_large_response_decoder = msgspec.json.Decoder(_LargeResponse)


class ParsedRequest(NamedTuple):
    """A parsed and validated request."""

    #: Its values (N, K) are not yet checked to be logits or probabilities.
    batch: Batch
    id: str | None
    #: The requested outputs; True: as binary data after the JSON.
    outputs: dict[str, bool]


def schemas() -> dict[str, Any]:
    """Return the JSON Schema of requests, for the OpenAPI document."""
    template = "#/components/schemas/{name}"
    return msgspec.json.schema_components([InferRequest], ref_template=template)[1]


def parse(
    body: bytes,
    json_length: str | None,
    max_json_bytes: int = MAX_DIMENSION,
    default_input: str = INPUT,
) -> ParsedRequest:
    """Return a parsed request.

    Parameters
    ----------
    body: the whole body.
    json_length: the header `Inference-Header-Content-Length`, or None.
    default_input: what the values are unless the request says it.

    Raises
    ------
    InputError: the length exceeds the body, the JSON is neither a request nor a response, it has
        not exactly one tensor, the shape is not [N, K], or the data do not match the shape.
    TooLargeError: more than `max_json_bytes` of JSON, or of over 64 KiB besides the numbers.
    """
    size = _json_size(body, json_length)
    if size > max_json_bytes:
        accepted = f"at most {max_json_bytes} bytes; the binary tensor data extension for more"
        raise TooLargeError("body", found=f"{size} bytes of JSON", accepted=accepted)
    request = _decode(body[:size])
    tensor = _input_tensor(request)
    is_response = not request.inputs
    if is_response:  # its parameters are about the other model
        request.parameters, request.outputs = {}, []
    outputs = _requested_outputs(request)
    values = _values(tensor, memoryview(body)[size:])
    batch = batch_of(values, {"input": default_input, **request.parameters}, outputs)
    return ParsedRequest(batch, request.id, outputs)


def batch_of(values: Floats, parameters: Mapping[str, Any], outputs: Container[str]) -> Batch:
    """Return rows (N, K) with what the parameters and the requested outputs say of them.

    Raises
    ------
    InputError: the parameter `input`, `segment` or `group` is not valid.
    """
    kind = parameters.get("input", "logits")
    if kind not in ("logits", "probabilities"):
        raise InputError(
            "parameters.input", found=repr(kind)[:80], accepted="logits or probabilities"
        )
    texts = {name: parameters.get(name, "") for name in ("segment", "group")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"parameters.{name}", found=repr(text)[:80], accepted="text")
    return Batch(
        values,
        kind,
        sets=SETS in outputs,
        intervals=INTERVALS in outputs,
        accepted=ACCEPTED in outputs,
        ids=1.0 if IDS in outputs else 0.0,
        **texts,
    )


def _input_tensor(request: InferRequest) -> InputTensor:
    """Return the only input; without inputs, the only output of a response, or that named `logits`.

    Raises
    ------
    InputError: there is no such tensor.
    """
    tensors: Sequence[InputTensor | RequestedOutput] = request.inputs or request.outputs
    found = ", ".join(tensor.name for tensor in tensors)[:80] or "none"
    if len(tensors) == 1:
        (tensor,) = tensors
    elif request.inputs:
        raise InputError("inputs", found=found, accepted="one tensor")
    else:
        named = [tensor for tensor in tensors if tensor.name == INPUT]
        if len(named) != 1:
            raise InputError(
                "inputs", found=found, accepted=f"a tensor, or an output named {INPUT}"
            )
        (tensor,) = named
    if tensor.shape is None or tensor.datatype is None:  # a requested output
        raise InputError("inputs", found="none", accepted="a tensor, or outputs with data")
    return InputTensor(tensor.name, tensor.shape, tensor.datatype, tensor.parameters, tensor.data)


def answer(parsed: ParsedRequest, result: CalibrationResult) -> tuple[bytes, int]:
    """Return a response, JSON and the binary data after it, and the length of the JSON."""
    loaded = result.loaded
    outputs: list[dict[str, Any]] = []
    tails: list[bytes | memoryview] = []
    for name, binary in parsed.outputs.items():
        tensor = Tensor.of(name, result)
        output: dict[str, Any] = {"name": name, "datatype": tensor.datatype, "shape": tensor.shape}
        if binary:
            tails.append(tensor.to_bytes())
            output["parameters"] = {"binary_data_size": len(tails[-1])}
        else:
            is_float = tensor.datatype == "FP32"
            output["data"] = fragment(tensor.values) if is_float else tensor.values
        outputs.append(output)
    document: dict[str, Any] = {"model_name": loaded.model, "outputs": outputs}
    if loaded.is_uncalibrated:
        document["parameters"] = {UNCALIBRATED: True}
    else:
        document["model_version"] = str(loaded.version)
    if result.adaptation is not None:
        document["parameters"] = {"adaptation": result.adaptation}
    if parsed.id is not None:
        document["id"] = parsed.id
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join((text, *tails)), len(text)


def _decode(text: bytes) -> InferRequest:
    accepted = f'{{"inputs": [{{"name": "{INPUT}", "shape": [N, K], "datatype": ..., ...}}]}}'
    if len(text) <= _MAX_WHOLE_BYTES:
        return decode(_decoder, text, accepted)
    large, tensor = _decode_large(text, accepted)
    data, tensor.data = tensor.data, msgspec.UNSET
    rest = msgspec.json.encode(large)
    if len(rest) > _MAX_WHOLE_BYTES:
        found, accepted = f"{len(rest)} bytes besides data", f"at most {_MAX_WHOLE_BYTES}"
        raise TooLargeError("body", found=found, accepted=accepted)
    request = decode(_decoder, rest, accepted)
    (request.inputs or request.outputs)[0].data = data
    return request


def _decode_large(
    text: bytes, accepted: str
) -> tuple[_LargeRequest | _LargeResponse, _LargeTensor]:
    """Return a request or a response before its values are parsed, and its tensor."""
    try:
        request: _LargeRequest = decode(_large_decoder, text, accepted)
        return request, request.inputs[0]
    except InputError as error:
        try:
            response: _LargeResponse = decode(_large_response_decoder, text, accepted)
        except InputError:
            raise error from None
        return response, response.outputs[0]


class Tensor(NamedTuple):
    """An output."""

    datatype: str
    shape: list[int]
    #: In row order, flat: an array, or ASCII texts.
    values: Any

    @classmethod
    def of(cls, name: str, result: CalibrationResult) -> Tensor:
        """Return an output of a result; a row without an id has an empty text."""
        datatype = OUTPUTS[name]
        if name == IDS:
            texts = [id or "" for id in result.ids or []]
            return cls(datatype, [len(texts)], texts)
        values = np.ascontiguousarray(getattr(result, name), _DTYPES[datatype])
        return cls(datatype, list(values.shape), values.reshape(-1))

    def to_bytes(self) -> bytes | memoryview:
        """Return the values as the protocol has them; each text is preceded by its length."""
        if self.datatype == "BYTES":
            return b"".join(len(text).to_bytes(4, "little") + text.encode() for text in self.values)
        return self.values.data.cast("B")


def check_outputs(outputs: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Raise `InputError` for an unknown or repeated output, or an unsupported parameter."""
    names = [name for name, _ in outputs]
    if not set(names) <= OUTPUTS.keys() or len(set(names)) < len(names):
        accepted = f"some of {', '.join(OUTPUTS)}, each once"
        raise InputError("outputs", found=", ".join(names)[:80], accepted=accepted)
    for index, (_, parameters) in enumerate(outputs):
        if "classification" in parameters:
            raise InputError(
                f"outputs[{index}].parameters.classification",
                found="it",
                accepted="all probabilities",
            )


def dtype_of(datatype: str) -> Any:
    """Return the NumPy dtype of a datatype; raise `InputError` for an unsupported one."""
    dtype = DATATYPES.get(datatype)
    if dtype is None:
        accepted = ", ".join(DATATYPES)
        raise InputError("inputs[0].datatype", found=repr(datatype)[:80], accepted=accepted)
    return dtype


def shape_of(shape: Sequence[int]) -> tuple[int, int]:
    """Return N and K of a shape [N, K]; raise `InputError` for any other shape."""
    if len(shape) != 2 or not all(0 < length <= MAX_DIMENSION for length in shape):
        accepted = f"[N, K], each from 1 to {MAX_DIMENSION}"
        raise InputError("inputs[0].shape", found=str(list(shape))[:80], accepted=accepted)
    rows, classes = shape
    return rows, classes


def _json_size(body: bytes, length: str | None) -> int:
    if length is None:
        return len(body)
    size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else -1
    if not 0 < size <= len(body):
        raise InputError(
            "Inference-Header-Content-Length",
            found=repr(length[:40]),
            accepted=f"the length of the JSON in a body of {len(body)} bytes",
        )
    return size


def _requested_outputs(request: InferRequest) -> dict[str, bool]:
    """Return the requested outputs; True: as binary data."""
    default = request.parameters.get("binary_data_output", False)
    if not request.outputs:
        return {OUTPUT: default is True}
    check_outputs([(output.name, output.parameters) for output in request.outputs])
    return {
        output.name: output.parameters.get("binary_data", default) is True
        for output in request.outputs
    }


def _values(tensor: InputTensor, binary: memoryview) -> Floats:
    """Return the array (N, K) of a tensor, from `binary` if its JSON has no data."""
    field = "inputs[0]"
    dtype = dtype_of(tensor.datatype)
    rows, classes = shape_of(tensor.shape)
    size = tensor.parameters.get("binary_data_size")
    if size is None:
        if len(binary) > 0:
            found = f"{len(binary)} bytes behind the JSON"
            raise InputError(f"{field}.parameters", found=found, accepted="binary_data_size")
        return _from_json(tensor, rows, classes)
    if tensor.data is not msgspec.UNSET:
        raise InputError(f"{field}.data", found="data and binary_data_size", accepted="one of them")
    expected = rows * classes * dtype.itemsize
    if type(size) is not int or not size == expected == len(binary):
        raise InputError(
            f"{field}.parameters.binary_data_size",
            found=f"{size!r}, with {len(binary)} bytes behind the JSON"[:120],
            accepted=f"{expected} bytes, as shape and datatype say",
        )
    return from_bytes(binary, tensor.datatype).reshape(rows, classes)


def _from_json(tensor: InputTensor, rows: int, classes: int) -> Floats:
    """Return the array (N, K) of a tensor with JSON data: a flat list, or a list per row."""
    field = "inputs[0].data"
    if tensor.datatype not in _IN_JSON:
        raise InputError(
            "inputs[0].datatype", found=tensor.datatype, accepted=f"{', '.join(_IN_JSON)} in JSON"
        )
    if tensor.data is msgspec.UNSET:
        raise InputError(field, found="nothing", accepted="numbers, or binary_data_size")
    data = bytes(tensor.data)
    # float32, as in /v1: served probabilities have no more digits.
    dtype: type[np.floating[Any]] = np.float64 if tensor.datatype == "FP64" else np.float32
    accepted = f"{rows * classes} numbers, as the shape [{rows}, {classes}] says"
    nested = data[1:].lstrip()[:1] == b"["
    try:
        if nested:
            array = row_array(data, field, dtype, rows, accepted)
        else:
            array = flat_array(data, field, dtype, rows * classes, accepted)
    except TooLargeError as error:
        raise InputError(field, found=error.found, accepted=accepted) from None
    if array.shape not in ((rows, classes), (rows * classes,)):
        found = f"shape {list(array.shape)}" if nested else f"{len(array)} numbers"
        raise InputError(field, found=found, accepted=accepted)
    return array.reshape(rows, classes)
