"""The three backends agree, operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.special

from recalib.ops import NumpyOps
from recalib.ops.onnx_ops import OnnxOps
from recalib.ops.torch_ops import TorchOps

#: Name, the operation as a map writes it, and the same by SciPy or plain NumPy.
OPERATIONS: list[tuple[str, Callable[[Any, Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("softmax", lambda o, x: o.softmax(x), lambda x: scipy.special.softmax(x, axis=1)),
    ("log_softmax", lambda o, x: o.log_softmax(x), lambda x: scipy.special.log_softmax(x, axis=1)),
    ("log", lambda o, x: o.log(x * x + 1.0), lambda x: np.log(x * x + 1)),
    ("sum", lambda o, x: x - o.sum(x), lambda x: x - x.sum(axis=1, keepdims=True)),
    ("where", lambda o, x: o.where(o.is_masked(x), 3.0, x), lambda x: np.where(x == -np.inf, 3, x)),
    ("add", lambda o, x: 1.5 + x + 2.0, lambda x: x + 3.5),
    ("subtract", lambda o, x: 1.5 - (x - 2.0), lambda x: 3.5 - x),
    ("multiply", lambda o, x: 2.0 * x * 0.25, lambda x: x * 0.5),
    ("divide", lambda o, x: 1.0 / (x * x + 1.0) / 2.0, lambda x: 0.5 / (x * x + 1)),
    (
        "scale_rows",
        lambda o, x: o.scale_rows(x, 1.0 / o.sum(x * x)),
        lambda x: x / (x * x).sum(axis=1, keepdims=True),
    ),
    (
        "select",
        lambda o, x: x * o.select(o.constant(np.array([1.0, 7.0])), 1),
        lambda x: x * 7,
    ),
    (
        "top_k_indices",
        lambda o, x: o.put_along(
            x, o.top_k_indices(x, 3), o.take_along(x * 2.0, o.top_k_indices(x, 3))
        ),
        lambda x: np.where(x >= np.sort(x, axis=1)[:, [-3]], 2 * x, x),
    ),
    (
        "weighted_sum",
        lambda o, x: o.weighted_sum(
            o.constant(np.array([0.0, 0.25, 1.0])), (lambda: x, lambda: x, lambda: 0.0 - x)
        ),
        lambda x: -0.75 * x,
    ),
    ("log_sigmoid", lambda o, x: o.log_sigmoid(x * 9.0), lambda x: scipy.special.log_expit(x * 9)),
    ("clip_min", lambda o, x: o.clip_min(x, -1.5), lambda x: np.maximum(x, -1.5)),
    ("unmasked", lambda o, x: x * 0.0 + o.unmasked(x * 1e37), lambda x: np.ones_like(x)),
    (
        "unmasked with masks",
        lambda o, x: o.unmasked(o.where(o.greater_equal(x, 0.0), x, -np.inf)),
        lambda x: np.where(x >= 0, 1.0, 0.0),
    ),
    (
        "top_two",
        lambda o, x: o.put_along(x, o.top_two(x)[0], o.top_two(x)[1] * o.top_two(x)[2]),
        lambda x: np.where(x == x.max(axis=1, keepdims=True), x * np.sort(x, axis=1)[:, [-2]], x),
    ),
    (
        "top_two of equals",
        lambda o, x: o.put_along(x, o.top_two(o.relu(0.0 - x * x))[0], o.top_two(x * 0.0)[2]),
        lambda x: np.concatenate([np.zeros((len(x), 1)), x[:, 1:]], axis=1),
    ),
    (
        "greater_equal",
        lambda o, x: o.where(o.greater_equal(x, 1.0), x, 0.0),
        lambda x: np.where(x >= 1, x, 0),
    ),
    (
        "argmax and take_along",
        lambda o, x: x * 0.0 + o.take_along(x, o.argmax(x)),
        lambda x: np.broadcast_to(x.max(axis=1, keepdims=True), x.shape),
    ),
    (
        "argmax of equals, and put_along",
        lambda o, x: o.put_along(x, o.argmax(x * 0.0), 7.0),
        lambda x: np.concatenate([np.full((len(x), 1), 7.0), x[:, 1:]], axis=1),
    ),
    (
        "put_along with a column",
        lambda o, x: o.put_along(x, o.argmax(x), o.sum(x)),
        lambda x: np.where(x == x.max(axis=1, keepdims=True), x.sum(axis=1, keepdims=True), x),
    ),
    (
        "gather of one table",
        lambda o, x: o.gather(
            o.constant(np.arange(2) + 5.0), o.where(o.greater_equal(x, 0.0), 1.0, 0.0)
        ),
        lambda x: np.where(x >= 0, 6, 5),
    ),
    (
        "gather of a table for each class",
        lambda o, x: o.gather(
            o.constant(np.arange(10.0).reshape(5, 2)), o.where(o.greater_equal(x, 0.0), 1.0, 0.0)
        ),
        lambda x: np.arange(5) * 2 + np.where(x >= 0, 1, 0),
    ),
]


@pytest.mark.parametrize(
    ("name", "operation", "expected"), OPERATIONS, ids=[o[0] for o in OPERATIONS]
)
def test_backends_agree(
    name: str, operation: Callable[[Any, Any], Any], expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    x = np.random.default_rng(0).normal(size=(6, 5)) * 10
    if name in ("softmax", "where"):
        x[1, 2] = -np.inf
    right = expected(x)
    np.testing.assert_allclose(operation(NumpyOps(), x), right, rtol=1e-13, atol=1e-300)
    torch_ops = TorchOps()
    by_torch = operation(torch_ops, torch_ops.constant(x))
    np.testing.assert_allclose(by_torch.numpy(), right, rtol=1e-12, atol=1e-300)
    onnx_ops = OnnxOps()
    graph = onnx_ops.model(operation(onnx_ops, onnx_ops.input("logits")), classes=5)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    (by_onnx,) = session.run(None, {"logits": x.astype(np.float32)})
    np.testing.assert_allclose(by_onnx, right, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e4, 1e30, 1e300])
def test_softmax_is_stable_at_any_scale(scale: float) -> None:
    """Recipe: subtract the largest first; log_softmax is never the logarithm of a softmax."""
    x = np.array([[1.0, 2.0, 3.0]]) * scale
    ops = NumpyOps()
    np.testing.assert_array_equal(ops.softmax(x), [[0, 0, 1]])
    np.testing.assert_allclose(ops.log_softmax(x), [[-2 * scale, -scale, 0]])


def test_identity_onnx_graph_is_valid() -> None:
    """An output equal to the input needs an Identity node."""
    ops = OnnxOps()
    session = onnxruntime.InferenceSession(
        ops.model(ops.input("logits"), classes=2).SerializeToString()
    )
    x = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(session.run(None, {"logits": x})[0], x)


@pytest.mark.parametrize("classes", [2, 10, 32])
def test_plain_python_softmax_matches_numpy(classes: int) -> None:
    """The plain Python version agrees to rounding, for extreme and masked classes as well."""
    rng = np.random.default_rng(classes)
    many = rng.normal(size=(400, classes)) * rng.choice([1e-3, 3.0, 1e3, 1e300], size=(400, 1))
    many[rng.random(many.shape) < 0.2] = -np.inf
    many[:, 0] = rng.normal(size=400)
    ops = NumpyOps()
    together = ops.softmax(many)
    single = np.concatenate([ops.softmax(row[None]) for row in many])
    np.testing.assert_allclose(single, together, rtol=4e-15)
    assert np.array_equal(single == 0, together == 0)
    assert ops.softmax(np.ones((1, classes), np.float32)).dtype == np.float32
