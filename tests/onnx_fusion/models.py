"""Small classifiers in ONNX, as users have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.numpy_helper import from_array

__all__ = ["classifier", "save", "typed"]

#: Features and classes of every model here.
FEATURES, CLASSES = 5, 4


def typed(name: str, dtype: int, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    """Return a declared input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def classifier(
    *,
    opset: int = 21,
    dtype: int = TensorProto.FLOAT,
    rows: Any = "N",
    output: str = "scores",
    more: Sequence[NodeProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    scale: float = 3.0,
) -> ModelProto:
    """Return a linear classifier, with `more` nodes behind it."""
    weights = np.random.default_rng(0).normal(size=(FEATURES, CLASSES)) * scale
    array = weights.astype(helper.tensor_dtype_to_np_dtype(dtype))
    node = helper.make_node("MatMul", ["x", "constant_0"], [output])
    graph = helper.make_graph(
        [node, *more],
        "classifier",
        [typed("x", dtype, [rows, FEATURES])],
        outputs or [typed(output, dtype, [rows, CLASSES])],
        # The name that our own graph gives to its first constant.
        [from_array(array, "constant_0")],
    )
    imports = [helper.make_opsetid("", opset)]
    version = max(4, helper.find_min_ir_version_for(imports))
    return helper.make_model(graph, opset_imports=imports, ir_version=version)


def save(model: ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Write a model's file."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path
