"""Append the nodes of a calibrator to an output of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.version_converter
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.numpy_helper import from_array, to_array

from recalib.calibrator import Calibrator
from recalib.core.arrays import SMALLEST_PROBABILITY
from recalib.errors import InputError, UnsupportedError
from recalib.files import Input
from recalib.ops.onnx_ops import OPSET

#: The oldest supported opset: Softmax over one axis was added in it.
_OLDEST_OPSET = 13
#: From this opset on, reductions take their axes as an input; ReduceSum does so earlier.
_AXES_AS_INPUT = 18

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_CARD = "recalib.core.card"


@dataclass(frozen=True)
class AppendedModel:
    """The model with the appended calibrator."""

    model: ModelProto
    #: Names of the new outputs; None without prediction sets, rejection, and intervals.
    probabilities: str
    sets: str | None
    accepted: str | None
    intervals: str | None
    #: Name of the first value of the appended nodes: the model's output as float32 or float64.
    entrance: str
    #: Whether the model's output is float16.
    half: bool


def append(
    model: ModelProto,
    calibrator: Calibrator,
    source: str,
    *,
    input: Input,
    keep: bool,
    external: bool,
) -> AppendedModel:
    """Return a copy of `model` with the calibrator appended to output `source`.

    Parameters
    ----------
    input: whether `source` holds logits or probabilities.
    keep: whether `source` stays an output.
    external: whether weights are in other files.

    Raises
    ------
    InputError: as `recalib.onnx_fusion.fuse`, if the file shows it without running the model.
    """
    if any(entry.key == _CARD for entry in model.metadata_props):
        raise InputError(
            "model", found="a graph that holds a calibrator already", accepted="a classifier alone"
        )
    if calibrator.is_multilabel:
        accepted = "one of rows with one class each; `recalib export` writes this one as a graph"
        raise InputError("calibrator", found="a multilabel calibrator", accepted=accepted)
    fused = _of_accepted_opset(model, external)
    graph = fused.graph
    output = next(value for value in graph.output if value.name == source)
    _check(output, calibrator.card.classes)
    names_in_use = set(_names(graph))
    prefix = _prefix(names_in_use)
    part = _part(calibrator, _opset(fused))
    names = {}
    for result in part.graph.output:
        choices = (result.name, f"calibrated_{result.name}", f"{prefix}{result.name}")
        names[result.name] = next(name for name in choices if name not in names_in_use)
    _rename(part.graph, prefix, names)
    entrance = _connect(graph, output, f"{prefix}logits", input)
    graph.node.extend(part.graph.node)
    graph.initializer.extend(part.graph.initializer)
    for result in part.graph.output:
        kind = result.type.tensor_type.elem_type
        name = names[result.name]
        axes = [axis.dim_value for axis in result.type.tensor_type.shape.dim[1:]]
        graph.output.append(_result(name, kind, output, axes))
    half = output.type.tensor_type.elem_type == TensorProto.FLOAT16
    if not keep:
        graph.output.remove(output)
    fused.metadata_props.extend(part.metadata_props)
    others = names.get("sets"), names.get("accepted"), names.get("intervals")
    return AppendedModel(fused, names["probabilities"], *others, entrance, half)


def _of_accepted_opset(model: ModelProto, external: bool) -> ModelProto:
    """Return a copy of the model, converted if its opset is too old for the nodes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    opset = _opset(model)
    if opset < _OLDEST_OPSET:
        accepted = f"opset {_OLDEST_OPSET} or later: export it again, or convert it first"
        if external:  # the converter would drop the references to them
            raise UnsupportedError(
                "model", found=f"opset {opset} with weights in other files", accepted=accepted
            )
        try:
            copy = onnx.version_converter.convert_version(copy, _OLDEST_OPSET)
        except Exception as error:  # the C++ converter raises arbitrary types
            found = f"opset {opset}, which onnx cannot convert ({error})"
            raise UnsupportedError("model", found=found, accepted=accepted) from None
    # Before version 4, every initializer had to be an input; the appended ones are not.
    least = helper.find_min_ir_version_for(copy.opset_import, ignore_unknown=True)
    copy.ir_version = max(copy.ir_version, least, 4)
    return copy


def _check(output: ValueInfoProto, classes: int) -> None:
    """Raise `InputError` if the declared type or shape of `output` is not (N, `classes`) floats."""
    field = f"model output {output.name}"
    kind = output.type.WhichOneof("value")
    if kind != "tensor_type":
        raise InputError(
            field, found=(kind or "no type").replace("_type", ""), accepted="a tensor of floats"
        )
    tensor = output.type.tensor_type
    if tensor.elem_type not in _FLOATS:
        found = TensorProto.DataType.Name(tensor.elem_type).lower()
        raise InputError(field, found=found, accepted="float16, float32 or float64")
    if not tensor.HasField("shape"):
        return  # checked when the model runs
    if len(tensor.shape.dim) != 2:
        raise InputError(
            field, found=f"{len(tensor.shape.dim)} axes", accepted=f"2 axes, [N, {classes}]"
        )
    last = tensor.shape.dim[1]
    if last.HasField("dim_value") and last.dim_value != classes:
        raise InputError(
            field, found=f"{last.dim_value} classes", accepted=f"the calibrator's {classes}"
        )


def _part(calibrator: Calibrator, opset: int) -> ModelProto:
    """Return the calibrator's graph, written for `opset`."""
    part = onnx.load_from_string(calibrator.to_onnx())
    part.opset_import[0].version = opset
    part.ir_version = helper.find_min_ir_version_for(part.opset_import)
    if opset < _AXES_AS_INPUT:
        _axes_as_attributes(part.graph)
    try:
        onnx.checker.check_model(part, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedError(
            "model",
            found=f"opset {opset}, in which {calibrator.card.map} cannot be written ({error})",
            accepted="a later opset: export the model again, or convert it first",
        ) from None
    return part


def _axes_as_attributes(graph: GraphProto) -> None:
    values = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type.startswith("Reduce") and node.op_type != "ReduceSum":
            axes = to_array(values[node.input.pop()])
            node.attribute.append(helper.make_attribute("axes", axes.tolist()))


def _connect(graph: GraphProto, output: ValueInfoProto, logits: str, input: Input) -> str:
    """Add the nodes that convert an output to float32 logits; return its first value."""
    if input == "logits":
        graph.node.append(_cast(output.name, logits, TensorProto.FLOAT))
        return logits
    # In float64, because some float32 logarithms round 1e-38 up.
    smallest = f"{logits}_smallest"
    graph.initializer.append(from_array(np.array(SMALLEST_PROBABILITY), smallest))
    wide, clipped, logs = (f"{logits}_{step}" for step in ("wide", "clipped", "logs"))
    graph.node.extend(
        [
            _cast(output.name, wide, TensorProto.DOUBLE),
            helper.make_node("Max", [wide, smallest], [clipped]),
            helper.make_node("Log", [clipped], [logs]),
            _cast(logs, logits, TensorProto.FLOAT),
        ]
    )
    return wide


def _cast(name: str, to: str, dtype: int) -> NodeProto:
    return helper.make_node("Cast", [name], [to], to=dtype)


def _result(name: str, kind: int, output: ValueInfoProto, axes: list[int]) -> ValueInfoProto:
    """Return the type of a new output: the number of rows of `output`, with the same symbol."""
    dims = output.type.tensor_type.shape.dim
    rows = (dims[0].dim_param or dims[0].dim_value or None) if dims else None
    return helper.make_tensor_value_info(name, kind, [rows, *axes])


def _rename(graph: GraphProto, prefix: str, names: Mapping[str, str]) -> None:
    """Put `prefix` before every name in a graph without subgraphs, except for those in `names`."""

    def rename(name: str) -> str:
        return names.get(name, f"{prefix}{name}")

    for node in graph.node:
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = rename(tensor.name)


def _prefix(names_in_use: set[str]) -> str:
    """Return a prefix that no name in the model starts with."""
    prefix, count = "recalib/", 1
    while any(name.startswith(prefix) for name in names_in_use):
        count += 1
        prefix = f"recalib_{count}/"
    return prefix


def _names(graph: GraphProto) -> Iterator[str]:
    """Yield the names of all values of a graph and its subgraphs, which share a scope."""
    for tensor in graph.initializer:
        yield tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            for inner in (*attribute.graphs, attribute.g):
                yield from _names(inner)


def _opset(model: ModelProto) -> int:
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx"):
            return int(opset.version)
    # All nodes are of other domains: add the standard domain for the appended nodes.
    opset = model.opset_import.add()
    opset.version = OPSET
    return OPSET
