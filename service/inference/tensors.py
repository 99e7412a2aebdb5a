"""Tensors of the Open Inference Protocol V2, in JSON and in the binary tensor data extension.

A request is JSON; with the extension, `Inference-Header-Content-Length` says how long the JSON is,
and the tensors' bytes follow it, little-endian and row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
import orjson

from recalib.arrays import Floats
from recalib.errors import InputError
from recalib.files.json import array_of, decode_document
from service.serving import json_numbers as numbers
from service.serving.datatypes import DATATYPES, MAX_DIMENSION, from_bytes
from service.serving.loaded_calibrators import LoadedCalibrator

__all__ = [
    "DATATYPES", "IDS", "INPUT", "OUTPUT", "InferRequest", "Question", "answer", "bytes_of",
    "check_outputs", "dtype_of", "from_bytes", "parse", "schemas", "shape_of",
]  # fmt: skip

#: The names of a calibrator's tensors.
INPUT, OUTPUT = "logits", "probabilities"
#: An output that is made only when it is asked for.
IDS = "prediction_ids"

_IN_JSON = ("FP16", "FP32", "FP64")


class InputTensor(msgspec.Struct):
    """One input; `data` unless its bytes follow the JSON."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class WantedOutput(msgspec.Struct):
    """One output that is asked for."""

    name: str
    parameters: dict[str, Any] = {}


class InferRequest(msgspec.Struct):
    """What the protocol sends; members and parameters that are not ours are another server's."""

    inputs: list[InputTensor]
    id: str | None = None
    parameters: dict[str, Any] = {}
    outputs: list[WantedOutput] = []


_decoder = msgspec.json.Decoder(InferRequest)
_flat = msgspec.json.Decoder(list[float | None])
_rows = msgspec.json.Decoder(list[list[float | None]])


@dataclass(frozen=True)
class Question:
    """A request, understood."""

    #: (N, K), not yet checked for what they are.
    values: Floats
    #: What the values are.
    input: Literal["logits", "probabilities"]
    id: str | None
    #: The outputs that are asked for, each with whether it shall be bytes behind the JSON.
    outputs: dict[str, bool]
    #: Where the rows come from, as for `/v1`; empty for nowhere in particular.
    segment: str = ""


def schemas() -> dict[str, Any]:
    """Return what a request's JSON looks like, for the description of the interface."""
    template = "#/components/schemas/{name}"
    return msgspec.json.schema_components([InferRequest], ref_template=template)[1]


def parse(body: bytes, json_length: str | None) -> Question:
    """Return what a request asks for.

    Parameters
    ----------
    body: the whole body.
    json_length: the header `Inference-Header-Content-Length`, where there is one.

    Raises
    ------
    InputError: a length that the body does not have, JSON that is no request, a tensor that is
        not `logits` of [N, K], or data that do not fill its shape.
    """
    size = _json_size(body, json_length)
    accepted = f'{{"inputs": [{{"name": "{INPUT}", "shape": [N, K], "datatype": ..., ...}}]}}'
    request = decode_document(_decoder, body[:size], accepted)
    if len(request.inputs) != 1 or request.inputs[0].name != INPUT:
        names = ", ".join(one.name for one in request.inputs) or "none"
        raise InputError("inputs", found=names[:80], accepted=f"one, named {INPUT}")
    kind = request.parameters.get("input", "logits")
    if kind not in ("logits", "probabilities"):
        raise InputError(
            "parameters.input", found=repr(kind)[:80], accepted="logits or probabilities"
        )
    segment = request.parameters.get("segment", "")
    if not isinstance(segment, str):
        raise InputError("parameters.segment", found=repr(segment)[:80], accepted="text")
    return Question(
        values=_values(request.inputs[0], memoryview(body)[size:]),
        input=cast("Literal['logits', 'probabilities']", kind),
        id=request.id,
        outputs=_wanted(request),
        segment=segment,
    )


def answer(
    question: Question, probabilities: Floats, ids: list[str | None], loaded: LoadedCalibrator
) -> tuple[bytes, bytes | memoryview]:
    """Return the JSON of an answer, and the bytes that follow it.

    Parameters
    ----------
    ids: (N,) where they are asked for; a row without has an empty one.
    """
    outputs: list[dict[str, Any]] = []
    tails: list[bytes | memoryview] = []
    for name, binary in question.outputs.items():
        tensor = _probabilities(probabilities, binary) if name == OUTPUT else _ids(ids, binary)
        output: dict[str, Any] = {"name": name, "datatype": tensor.datatype, "shape": tensor.shape}
        if binary:
            output["parameters"] = {"binary_data_size": len(tensor.content)}
            tails.append(tensor.content)
        else:
            output["data"] = tensor.content
        outputs.append(output)
    found: dict[str, Any] = {
        "model_name": loaded.model,
        "model_version": str(loaded.version),
        "outputs": outputs,
    }
    if question.id is not None:
        found["id"] = question.id
    text = orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY)
    return text, tails[0] if len(tails) == 1 else b"".join(tails)


class _Tensor(NamedTuple):
    datatype: str
    shape: list[int]
    #: Bytes, or what orjson writes as a list.
    content: Any


def _probabilities(probabilities: Floats, binary: bool) -> _Tensor:
    flat = np.ascontiguousarray(probabilities, np.dtype("<f4")).reshape(-1)
    return _Tensor("FP32", list(probabilities.shape), flat.data.cast("B") if binary else flat)


def _ids(ids: list[str | None], binary: bool) -> _Tensor:
    texts = [one or "" for one in ids]
    if not binary:
        return _Tensor("BYTES", [len(ids)], texts)
    return _Tensor("BYTES", [len(ids)], bytes_of(texts))


def bytes_of(texts: Iterable[str]) -> bytes:
    """Return ASCII texts as the protocol has BYTES: each with its length before it."""
    return b"".join(len(one).to_bytes(4, "little") + one.encode() for one in texts)


def check_outputs(outputs: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Raise `InputError` unless each output, by name and parameters, is ours, and there once."""
    names = [name for name, _ in outputs]
    if not set(names) <= {OUTPUT, IDS} or len(set(names)) < len(names):
        accepted = f"{OUTPUT}, {IDS} or both"
        raise InputError("outputs", found=", ".join(names)[:80], accepted=accepted)
    for place, (_, parameters) in enumerate(outputs):
        if "classification" in parameters:
            raise InputError(
                f"outputs[{place}].parameters.classification",
                found="it",
                accepted="all probabilities",
            )


def dtype_of(datatype: str) -> Any:
    """Return NumPy's type of one value; `InputError` for a datatype that is not read."""
    dtype = DATATYPES.get(datatype)
    if dtype is None:
        accepted = ", ".join(DATATYPES)
        raise InputError("inputs[0].datatype", found=repr(datatype)[:80], accepted=accepted)
    return dtype


def shape_of(shape: Sequence[int]) -> tuple[int, int]:
    """Return N and K of a shape; `InputError` for any other."""
    if len(shape) != 2 or not all(0 < length <= MAX_DIMENSION for length in shape):
        accepted = f"[N, K], each from 1 to {MAX_DIMENSION}"
        raise InputError("inputs[0].shape", found=str(list(shape))[:80], accepted=accepted)
    rows, classes = shape
    return rows, classes


def _json_size(body: bytes, given: str | None) -> int:
    if given is None:
        return len(body)
    size = int(given) if given.isascii() and given.isdigit() and len(given) < 20 else -1
    if not 0 < size <= len(body):
        raise InputError(
            "Inference-Header-Content-Length",
            found=repr(given[:40]),
            accepted=f"the length of the JSON in a body of {len(body)} bytes",
        )
    return size


def _wanted(request: InferRequest) -> dict[str, bool]:
    """Return which outputs are wanted, and whether in bytes: each may say so, or the request."""
    default = request.parameters.get("binary_data_output", False)
    if not request.outputs:
        return {OUTPUT: default is True}
    check_outputs([(one.name, one.parameters) for one in request.outputs])
    return {one.name: one.parameters.get("binary_data", default) is True for one in request.outputs}


def _values(tensor: InputTensor, rest: memoryview) -> Floats:
    """Return the array (N, K) of a tensor whose bytes are `rest`, if its JSON has no data."""
    field = "inputs[0]"
    dtype = dtype_of(tensor.datatype)
    rows, classes = shape_of(tensor.shape)
    size = tensor.parameters.get("binary_data_size")
    if size is None:
        if len(rest) > 0:
            found = f"{len(rest)} bytes behind the JSON"
            raise InputError(f"{field}.parameters", found=found, accepted="binary_data_size")
        return _from_json(tensor, rows, classes)
    if tensor.data is not msgspec.UNSET:
        raise InputError(f"{field}.data", found="data and binary_data_size", accepted="one of them")
    expected = rows * classes * dtype.itemsize
    if type(size) is not int or not size == expected == len(rest):
        raise InputError(
            f"{field}.parameters.binary_data_size",
            found=f"{size!r}, with {len(rest)} bytes behind the JSON"[:120],
            accepted=f"{expected} bytes, as shape and datatype say",
        )
    return from_bytes(rest, tensor.datatype).reshape(rows, classes)


def _from_json(tensor: InputTensor, rows: int, classes: int) -> Floats:
    """Return the array of a tensor whose data are in JSON: all in one list, or a list a row."""
    field = "inputs[0].data"
    if tensor.datatype not in _IN_JSON:
        raise InputError(
            "inputs[0].datatype", found=tensor.datatype, accepted=f"{', '.join(_IN_JSON)} in JSON"
        )
    if tensor.data is msgspec.UNSET:
        raise InputError(field, found="nothing", accepted="numbers, or binary_data_size")
    data = bytes(tensor.data)
    # float32, like logits of /v1: what a calibrator serves has no more digits.
    dtype: type[np.floating[Any]] = np.float64 if tensor.datatype == "FP64" else np.float32
    accepted = f"{rows * classes} numbers, as the shape [{rows}, {classes}] says"
    nested = data[1:].lstrip()[:1] == b"["
    if len(data) >= numbers.LONG:
        quick = numbers.rows_in(data) if nested else numbers.flat_in(data)
        if quick is not None and quick.shape in ((rows, classes), (rows * classes,)):
            with np.errstate(over="ignore"):  # as in `array_of`
                return quick.astype(dtype, copy=False).reshape(rows, classes)
    if nested:
        array = array_of(decode_document(_rows, data, accepted, field), field, dtype)
        if array.shape != (rows, classes):
            raise InputError(field, found=f"shape {list(array.shape)}", accepted=accepted)
        return array
    flat = decode_document(_flat, data, accepted, field)
    if len(flat) != rows * classes:
        raise InputError(field, found=f"{len(flat)} numbers", accepted=accepted)
    return array_of([flat], field, dtype).reshape(rows, classes)
