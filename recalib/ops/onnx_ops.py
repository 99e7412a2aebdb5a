"""ONNX backend: record the operations of a map as a graph.

The graph uses only the standard opset, so any runtime can run it. The graph of a temperature has
about 300 bytes. It contains no paths, host names or times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

#: Opset 21 (onnx 1.16, March 2024) and IR version 10 work with deployed runtimes.
OPSET = 21
IR_VERSION = 10

_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_FLOAT64: np.dtype[Any] = np.dtype(np.float64)


class GraphValue:
    """A value of the recorded graph: a name, and operators that add nodes."""

    def __init__(self, ops: OnnxOps, name: str, shape: tuple[int, ...] | None = None) -> None:
        self.ops = ops
        self.name = name
        #: Known for constants only.
        self.shape = shape
        #: Of numbers that are computed with it.
        self.dtype = _FLOAT32

    def __add__(self, other: GraphValue | float) -> GraphValue:
        return self.ops.node("Add", self, other)

    def __sub__(self, other: GraphValue | float) -> GraphValue:
        return self.ops.node("Sub", self, other)

    def __mul__(self, other: GraphValue | float) -> GraphValue:
        return self.ops.node("Mul", self, other)

    def __truediv__(self, other: GraphValue | float) -> GraphValue:
        return self.ops.node("Div", self, other)

    def __radd__(self, other: float) -> GraphValue:
        return self.ops.node("Add", other, self)

    def __rsub__(self, other: float) -> GraphValue:
        return self.ops.node("Sub", other, self)

    def __rmul__(self, other: float) -> GraphValue:
        return self.ops.node("Mul", other, self)

    def __rtruediv__(self, other: float) -> GraphValue:
        return self.ops.node("Div", other, self)


class OnnxOps:
    """`Ops` that record a graph; start with `input` and finish with `model`."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: dict[tuple[tuple[int, ...], bytes], TensorProto] = {}

    def input(self, name: str) -> GraphValue:
        """Return the graph's input of that name, float32."""
        return GraphValue(self, name)

    def constant(
        self, value: NDArray[np.floating[Any]], dtype: np.dtype[Any] = _FLOAT32
    ) -> GraphValue:
        array = np.asarray(value, dtype=dtype)
        key = (array.shape, array.dtype.char.encode() + array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = numpy_helper.from_array(array, name)
        result = GraphValue(self, self._constants[key].name, array.shape)
        result.dtype = array.dtype
        return result

    def softmax(self, x: GraphValue) -> GraphValue:
        return self.node("Softmax", x, axis=-1)

    def log_softmax(self, x: GraphValue) -> GraphValue:
        return self.node("LogSoftmax", x, axis=-1)

    def log(self, x: GraphValue) -> GraphValue:
        return self.node("Log", x)

    def sum(self, x: GraphValue) -> GraphValue:
        return self.node("ReduceSum", x, self.integers(-1), keepdims=1)

    def min(self, x: GraphValue) -> GraphValue:
        return self.node("ReduceMin", x, self.integers(-1), keepdims=1)

    def max(self, x: GraphValue) -> GraphValue:
        return self.node("ReduceMax", x, self.integers(-1), keepdims=1)

    def top_k(self, x: GraphValue, count: int) -> GraphValue:
        return self.node("TopK", x, self.integers(count), outputs=2)

    def matmul(self, x: GraphValue, matrix: GraphValue) -> GraphValue:
        return self.node("MatMul", x, matrix)

    def scale_rows(self, x: GraphValue, factors: GraphValue) -> GraphValue:
        return x * factors

    def relu(self, x: GraphValue) -> GraphValue:
        return self.node("Relu", x)

    def tanh(self, x: GraphValue) -> GraphValue:
        return self.node("Tanh", x)

    def exp(self, x: GraphValue) -> GraphValue:
        return self.node("Exp", x)

    def clip_min(self, x: GraphValue, floor: float) -> GraphValue:
        return self.node("Max", x, floor)

    def is_masked(self, x: GraphValue) -> GraphValue:
        return self.node("IsInf", x, detect_positive=0)

    def unmasked(self, x: GraphValue) -> GraphValue:
        # max(0, min(1, α x + 6)): 1 for every finite float32, since α times the lowest is over −5.
        # One pass; IsInf with a Cast or Where takes two to four times as long.
        return self.node("HardSigmoid", x, alpha=1.2e-38, beta=6.0)

    def where(self, condition: GraphValue, x: Any, y: Any) -> GraphValue:
        return self.node("Where", condition, x, y)

    def select(self, x: GraphValue, index: int) -> GraphValue:
        position = numpy_helper.from_array(np.array(index, dtype=np.int64), f"index_{index}")
        self._constants[((), position.name.encode())] = position
        return self.node("Gather", x, GraphValue(self, position.name))

    def weighted_sum(
        self, weights: GraphValue, terms: Sequence[Callable[[], GraphValue]]
    ) -> GraphValue:
        (tensor,) = (value for value in self._constants.values() if value.name == weights.name)
        numbers = [float(number) for number in numpy_helper.to_array(tensor)]
        # Weights below 1e-30 of the largest are lost in float32 rounding.
        limit = 1e-30 * max(map(abs, numbers))
        pairs = [pair for pair in zip(numbers, terms, strict=True) if abs(pair[0]) > limit]
        *first_pairs, (last, last_term) = pairs
        # The last weight is factored out of the sum, which saves a pass over the array.
        total = last_term()
        for weight, term in first_pairs:
            total = total + (term() if weight == last else term() * (weight / last))
        return total if last == 1 else total * last

    def log_sigmoid(self, x: GraphValue) -> GraphValue:
        # These five nodes take half the time of onnxruntime's Softplus.
        beyond = self.log(self.exp(self.node("Neg", self.node("Abs", x))) + 1.0)
        return self.node("Min", x, 0.0) - beyond

    def greater_equal(self, x: GraphValue, y: Any) -> GraphValue:
        return self.node("GreaterOrEqual", x, y)

    def less_equal(self, x: GraphValue, y: Any) -> GraphValue:
        return self.node("LessOrEqual", x, y)

    def to_float64(self, x: GraphValue) -> GraphValue:
        wide = self.node("Cast", x, to=TensorProto.DOUBLE)
        wide.dtype = _FLOAT64
        return wide

    def cumsum(self, x: GraphValue) -> GraphValue:
        return self.node("CumSum", x, self.integers(-1))

    def descending(self, x: GraphValue, classes: int) -> GraphValue:
        return self.top_k_indices(x, classes)  # of ties, the first comes first

    def argmax(self, x: GraphValue) -> GraphValue:
        return self.node("ArgMax", x, axis=-1, keepdims=1)

    def top_two(self, x: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
        values = self.node("TopK", x, self.integers(2), outputs=2)  # of ties, the first comes first
        places = GraphValue(self, f"{values.name}_1")
        first, second = self.integers(0), self.integers(1)
        return (
            self.node("Gather", places, first, axis=1),
            self.node("Gather", values, first, axis=1),
            self.node("Gather", values, second, axis=1),
        )

    def top_k_indices(self, x: GraphValue, count: int) -> GraphValue:
        values = self.node("TopK", x, self.integers(count), outputs=2)
        return GraphValue(self, f"{values.name}_1")

    def take_along(self, x: GraphValue, place: GraphValue) -> GraphValue:
        return self.node("GatherElements", x, place, axis=1)

    def put_along(self, x: GraphValue, place: GraphValue, values: Any) -> GraphValue:
        spread = self.node("Expand", self._value(values, x.dtype), self.node("Shape", place))
        return self.node("ScatterElements", x, place, spread, axis=1)

    def pairs(self, x: GraphValue, y: GraphValue) -> GraphValue:
        columns = [self.node("Unsqueeze", value, self.integers(-1)) for value in (x, y)]
        return self.node("Concat", *columns, axis=-1)

    def gather(self, table: GraphValue, position: GraphValue) -> GraphValue:
        if table.shape is None:
            raise TypeError("only a parameter can be a table")
        if len(table.shape) == 1:
            return self.node("Gather", table, self.node("Cast", position, to=TensorProto.INT32))
        rows, columns = table.shape
        position = position + self.constant(np.arange(rows, dtype=np.float32) * columns)
        index = self.node("Cast", position, to=TensorProto.INT32)
        # GatherElements on one axis: onnxruntime's Gather is ten times slower for single numbers,
        # which matters if every class has its own table.
        flat = self.node("Reshape", index, self.integers(-1))
        elements = self.node(
            "GatherElements", self.node("Reshape", table, self.integers(-1)), flat, axis=0
        )
        return self.node("Reshape", elements, self.node("Shape", position))

    def integers(self, *values: int) -> GraphValue:
        """Return a constant vector of integers, for axes, counts and shapes."""
        name = "integers_" + "_".join(str(value) for value in values)
        vector = numpy_helper.from_array(np.array(values, dtype=np.int64), name)
        self._constants[(vector.dims[0],), name.encode()] = vector
        return GraphValue(self, name)

    def node(
        self, kind: str, *inputs: GraphValue | float, outputs: int = 1, **attributes: Any
    ) -> GraphValue:
        """Add a node with `outputs` outputs and return the first."""
        values = [value for value in inputs if isinstance(value, GraphValue)]
        dtype = max((value.dtype for value in values), key=lambda dtype: dtype.itemsize)
        names = [self._value(value, dtype).name for value in inputs]
        output = f"value_{len(self._nodes)}"
        unused = [f"{output}_{i}" for i in range(1, outputs)]
        self._nodes.append(helper.make_node(kind, names, [output, *unused], **attributes))
        result = GraphValue(self, output)
        result.dtype = dtype
        return result

    def model(
        self,
        output: GraphValue,
        *,
        classes: int,
        input_name: str = "logits",
        output_name: str = "probabilities",
        sets: GraphValue | None = None,
        accepted: GraphValue | None = None,
        intervals: GraphValue | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> ModelProto:
        """Return the recorded graph from `input_name` to `output_name`, float32 [N, `classes`].

        With `sets`, booleans [N, `classes`], the graph has an output of that name too; with
        `accepted`, booleans [N, 1]; and with `intervals`, float32 [N, `classes`, 2].
        """
        nodes = [*self._nodes, helper.make_node("Identity", [output.name], [output_name])]
        if self._nodes and self._nodes[-1].output[0] == output.name:
            # The last node writes the output directly.
            last = NodeProto()
            last.CopyFrom(self._nodes[-1])
            last.output[0] = output_name
            nodes = [*self._nodes[:-1], last]
        shape = ["N", classes]
        outputs = [helper.make_tensor_value_info(output_name, TensorProto.FLOAT, shape)]
        if sets is not None:
            nodes.append(helper.make_node("Identity", [sets.name], ["sets"]))
            outputs.append(helper.make_tensor_value_info("sets", TensorProto.BOOL, shape))
        if accepted is not None:
            nodes.append(helper.make_node("Identity", [accepted.name], ["accepted"]))
            outputs.append(helper.make_tensor_value_info("accepted", TensorProto.BOOL, ["N", 1]))
        if intervals is not None:
            nodes.append(helper.make_node("Identity", [intervals.name], ["intervals"]))
            pairs = helper.make_tensor_value_info("intervals", TensorProto.FLOAT, [*shape, 2])
            outputs.append(pairs)
        read = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes,
            "recalib",
            [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)],
            outputs,
            # `weighted_sum` folds weights into the graph, so no node reads them.
            [constant for constant in self._constants.values() if constant.name in read],
        )
        model = helper.make_model(
            graph,
            producer_name="recalib",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        for key, value in metadata:
            entry = model.metadata_props.add()
            entry.key, entry.value = key, value
        return model

    def _value(self, x: GraphValue | float, dtype: np.dtype[Any]) -> GraphValue:
        return x if isinstance(x, GraphValue) else self.constant(np.asarray(x), dtype)
