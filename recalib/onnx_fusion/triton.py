"""Write a model repository for Triton: a calibrator, alone or behind a classifier."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper
from onnx.external_data_helper import uses_external_data

from recalib.calibrator import Calibrator
from recalib.errors import InputError
from recalib.files import Input, write_atomically
from recalib.maps.venn_abers import VennAbers
from recalib.onnx_fusion.append import append
from recalib.onnx_fusion.fuse import choose_source, load_onnx
from recalib.ops.onnx_ops import OPSET

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]*")
#: Data types of Triton by those of ONNX.
_TYPES = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.FLOAT16: "TYPE_FP16",
    TensorProto.DOUBLE: "TYPE_FP64",
    TensorProto.BFLOAT16: "TYPE_BF16",
    TensorProto.INT8: "TYPE_INT8",
    TensorProto.INT16: "TYPE_INT16",
    TensorProto.INT32: "TYPE_INT32",
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.UINT8: "TYPE_UINT8",
    TensorProto.UINT16: "TYPE_UINT16",
    TensorProto.UINT32: "TYPE_UINT32",
    TensorProto.UINT64: "TYPE_UINT64",
    TensorProto.BOOL: "TYPE_BOOL",
    TensorProto.STRING: "TYPE_STRING",
}


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a configuration."""

    name: str
    type: str
    #: With the axis of the batch; −1 for any length.
    shape: tuple[int, ...]


def write_repository(
    calibrator: Calibrator,
    folder: str | os.PathLike[str],
    name: str,
    *,
    model: str | os.PathLike[str] | None = None,
    source: str | None = None,
    input: Input = "logits",
    max_batch_size: int = 0,
) -> list[str]:
    """Write models into a model repository, and return their names.

    Without `model` it is the calibrator, from `logits` to `probabilities`. With `model` these are
    the classifier NAME_classifier, the calibrator NAME_calibrator, and the ensemble NAME of both,
    which has the inputs of the classifier and the output `probabilities`. A calibrator with
    thresholds of prediction sets has the output `sets` too, one with a threshold of rejection has
    `accepted`, one of the map `venn_abers` has `intervals`.

    Parameters
    ----------
    folder: the repository; it is created if it does not exist.
    model: an ONNX file of a classifier with an output [N, K].
    source, input: the output to calibrate and its kind, as in `recalib.onnx_fusion.fuse`.
    max_batch_size: 0: shapes include the axis of the batch. Above 0, Triton joins the requests that
        wait to batches of up to that many rows, and the first axis of every tensor must be free.

    Raises
    ------
    InputError: an invalid name, a file that cannot be read or is in the way, or a model whose
        output does not fit the calibrator.
    """
    if not _NAME.fullmatch(name):
        accepted = "letters, digits, '.', '_' and '-'"
        raise InputError("name", found=repr(name)[:80], accepted=accepted)
    if max_batch_size < 0:
        raise InputError("max_batch_size", found=f"{max_batch_size}", accepted="0 or more")
    root = Path(folder)
    names = [name] if model is None else [name, f"{name}_classifier", f"{name}_calibrator"]
    for directory in (root / each for each in names):
        if directory.exists():
            raise InputError("triton", found=f"{directory}, which exists", accepted="a new name")
    classes = calibrator.card.classes
    results = [_Tensor("probabilities", "TYPE_FP32", (-1, classes))]
    if calibrator.card.sets is not None:
        results.append(_Tensor("sets", "TYPE_BOOL", (-1, classes)))
    if calibrator.card.rejection is not None:
        results.append(_Tensor("accepted", "TYPE_BOOL", (-1, 1)))
    if isinstance(calibrator.map, VennAbers):
        results.append(_Tensor("intervals", "TYPE_FP32", (-1, classes, 2)))
    if model is None:
        logits = _Tensor("logits", "TYPE_FP32", (-1, classes))
        config = _onnx_config(name, [logits], results, max_batch_size)
        _write(root / name, config, calibrator.to_onnx())
        return names
    if not calibrator.accepts(input):
        card = calibrator.card
        found = f"{input}, while this {card.map} was fitted on {card.input}"
        raise InputError("input", found=found, accepted=card.input)
    path = Path(model)
    classifier = load_onnx(path)
    if any(uses_external_data(tensor) for tensor in classifier.graph.initializer):
        found = f"{path} with weights in other files"
        raise InputError("model", found=found, accepted="a model in one file")
    inputs, outputs = _interface(classifier)
    chosen = choose_source(classifier, source)
    scores = next(output for output in outputs if output.name == chosen)
    if max_batch_size:
        _check_batch_axis([*inputs, *outputs])
    part = _calibrator_of(classifier, chosen, calibrator, input)
    calibrator_input = _Tensor("scores", scores.type, (-1, classes))
    _write(
        root / names[1],
        _onnx_config(names[1], inputs, outputs, max_batch_size),
        path.read_bytes(),
    )
    _write(
        root / names[2],
        _onnx_config(names[2], [calibrator_input], results, max_batch_size),
        part.SerializeToString(),
    )
    steps = [
        (names[1], {tensor.name: tensor.name for tensor in inputs}, {chosen: "scores"}),
        (names[2], {"scores": "scores"}, {tensor.name: tensor.name for tensor in results}),
    ]
    _write(root / name, _ensemble_config(name, inputs, results, steps, max_batch_size), None)
    return names


def _calibrator_of(
    classifier: ModelProto, source: str, calibrator: Calibrator, input: Input
) -> ModelProto:
    """Return a graph from `scores`, of the type of the classifier's output, to `probabilities`."""
    output = next(value for value in classifier.graph.output if value.name == source)
    # `append` checks the declared type and shape, and converts float16, float64 and probabilities.
    scores, passed = ValueInfoProto(), ValueInfoProto()
    for copy, name in ((scores, "scores"), (passed, "passed")):
        copy.CopyFrom(output)
        copy.name = name
    graph = helper.make_graph(
        [helper.make_node("Identity", ["scores"], ["passed"])], "calibrator", [scores], [passed]
    )
    imports = [helper.make_opsetid("", OPSET)]
    version = helper.find_min_ir_version_for(imports)
    front = helper.make_model(graph, opset_imports=imports, ir_version=version)
    part = append(front, calibrator, "passed", input=input, keep=False, external=False).model
    onnx.checker.check_model(part)
    return part


def _interface(model: ModelProto) -> tuple[list[_Tensor], list[_Tensor]]:
    """Return the inputs and the outputs of a model."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    return [_tensor(value) for value in inputs], [_tensor(value) for value in model.graph.output]


def _tensor(value: ValueInfoProto) -> _Tensor:
    tensor = value.type.tensor_type
    accepted = "a tensor with a declared shape of one axis or more"
    if tensor.elem_type not in _TYPES:
        raise InputError(f"model tensor {value.name}", found="another type", accepted=accepted)
    if not tensor.shape.dim:
        raise InputError(f"model tensor {value.name}", found="no shape", accepted=accepted)
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    return _Tensor(value.name, _TYPES[tensor.elem_type], shape)


def _check_batch_axis(tensors: Sequence[_Tensor]) -> None:
    for tensor in tensors:
        if tensor.shape[0] != -1:
            found = f"{tensor.name} with a first axis of {tensor.shape[0]}"
            raise InputError("max_batch_size", found=found, accepted="0, or a free first axis")


def _onnx_config(
    name: str, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], max_batch_size: int
) -> str:
    lines = [f"name: {_quote(name)}", 'platform: "onnxruntime_onnx"']
    lines += _tensors(inputs, outputs, max_batch_size)
    if max_batch_size:
        lines.append("dynamic_batching { }")
    return "\n".join(lines) + "\n"


def _ensemble_config(
    name: str,
    inputs: Sequence[_Tensor],
    outputs: Sequence[_Tensor],
    steps: Sequence[tuple[str, dict[str, str], dict[str, str]]],
    max_batch_size: int,
) -> str:
    """Return the configuration of an ensemble.

    Parameters
    ----------
    steps: for each model its name, and its inputs and outputs with the names in the ensemble.
    """
    lines = [f"name: {_quote(name)}", 'platform: "ensemble"']
    lines += _tensors(inputs, outputs, max_batch_size)
    lines.append("ensemble_scheduling {")
    for model, input_map, output_map in steps:
        lines += ["  step {", f"    model_name: {_quote(model)}", "    model_version: -1"]
        for field, names in (("input_map", input_map), ("output_map", output_map)):
            lines += [
                f"    {field} {{ key: {_quote(key)} value: {_quote(value)} }}"
                for key, value in names.items()
            ]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _tensors(
    inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], max_batch_size: int
) -> list[str]:
    lines = [f"max_batch_size: {max_batch_size}"]
    for field, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            # Without the axis of the batch, if Triton manages it.
            dims = ", ".join(str(length) for length in tensor.shape[1 if max_batch_size else 0 :])
            quoted = _quote(tensor.name)
            lines.append(f"{field} {{ name: {quoted} data_type: {tensor.type} dims: [ {dims} ] }}")
    return lines


def _quote(text: str) -> str:
    """Return a string of the protobuf text format."""
    return json.dumps(text, ensure_ascii=False)


def _write(directory: Path, config: str, graph: bytes | None) -> None:
    """Write a model of the repository; an ensemble has an empty folder of its version."""
    try:
        (directory / "1").mkdir(parents=True)
    except OSError as error:
        found = f"{directory} ({error.strerror})"
        raise InputError("triton", found=found, accepted="a folder that can be written") from None
    if graph is not None:
        write_atomically(directory / "1" / "model.onnx", graph)
    write_atomically(directory / "config.pbtxt", config.encode())
