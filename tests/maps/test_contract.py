"""Contract tests of `recalib.maps.base`; every member of `MAPS` is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import onnx
import pytest

import recalib
from recalib.calibrator import Calibrator
from recalib.core.card import Card, DataSummary, FitSummary
from recalib.core.options import options_of
from recalib.errors import CorruptError
from recalib.maps import MAPS, Map, Parameter
from recalib.maps.histogram_binning import HistogramBinning
from recalib.maps.isotonic import Isotonic
from recalib.maps.stack import Member, Stack
from recalib.ops import NumpyOps
from recalib.ops.base import Array, Ops
from tests.maps.conftest import some_logits, some_parameters


def stack(pool: Literal["linear", "logarithmic"], *names: str, smoothing: float = 0) -> Stack:
    """Return a stack with weights in falling order."""
    weights = np.arange(len(names), 0, -1.0)
    return Stack(tuple(map(Member, names, (weights / weights.sum()).tolist())), pool, smoothing)


ALL = [pytest.param(member(), id=name) for name, member in MAPS.items()] + [
    pytest.param(HistogramBinning(target="one_vs_rest"), id="histogram_binning one_vs_rest"),
    pytest.param(HistogramBinning(binning="equal_width", bins=10), id="histogram_binning by width"),
    pytest.param(Isotonic(target="one_vs_rest", knots=16), id="isotonic one_vs_rest"),
    pytest.param(Isotonic(centred=True), id="isotonic centred"),
    pytest.param(Isotonic(target="one_vs_rest", centred=True), id="isotonic centred one_vs_rest"),
    pytest.param(
        stack("logarithmic", "ensemble_temperature", "spline", "temperature"), id="stack of logs"
    ),
    pytest.param(stack("logarithmic", "beta", "structured_matrix"), id="stack of a matrix"),
    pytest.param(stack("linear", "vector", "temperature", smoothing=0.01), id="smooth stack"),
    pytest.param(stack("linear", "histogram_binning", "dirichlet", "beta"), id="stack of a jump"),
]
#: Rows and classes: each number of rows and each number of classes once.
SIZES = [(1, 2), (7, 1000), (1000, 10)]


def calibrator_of(the_map: Map, classes: int, seed: int = 0) -> Calibrator:
    card = Card(
        map=the_map.name,
        objective="nll",
        options=options_of(the_map),
        classes=classes,
        library="0",
        created_at="2026-01-01T00:00:00+00:00",
        data=DataSummary(rows=1),
        fit=FitSummary(seconds=0, iterations=0, converged=True, objective=0),
    )
    return Calibrator(some_parameters(the_map, classes, seed), card)


def reference(the_map: Map, parameters: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    ops = NumpyOps()
    return the_map.probabilities(ops, logits, the_map.constants(ops, parameters))


def log_reference(
    the_map: Map, parameters: Mapping[str, np.ndarray], logits: np.ndarray
) -> np.ndarray:
    ops = NumpyOps()
    return the_map.log_probabilities(ops, logits, the_map.constants(ops, parameters))


def next_to_a_jump(
    the_map: Map, parameters: Mapping[str, np.ndarray], logits: np.ndarray
) -> np.ndarray:
    """Return which rows jump if a logit changes by its rounding error, as a mask (N, 1).

    The largest logit is moved up and down, which changes the odds of every class. The assertion
    limits the number of such rows, so that the exception stays an exception.
    """
    z = logits.astype(np.float64)
    largest = z == z.max(axis=1, keepdims=True)
    moved = np.abs(z).max(axis=1, keepdims=True) * 2.0**-20
    up, down = (
        log_reference(the_map, parameters, np.where(largest, z + sign * moved, z))
        for sign in (1, -1)
    )
    jumps = (np.abs(up - down) > 1e-3).any(axis=1, keepdims=True)
    # A row with a thousand odds, each with its own table, is often near some edge.
    assert jumps.mean() < 1 / len(z) + (0.01 if the_map.preserves_accuracy else 0.7)
    return jumps


def along_classes(
    the_map: Map,
    parameters: Mapping[str, np.ndarray],
    change: Callable[[np.ndarray, int], np.ndarray],
) -> dict[str, np.ndarray]:
    """Return the parameters with `change` applied along each class axis."""
    changed = dict(parameters)
    for name, parameter in the_map.parameters(10).items():
        for axis in parameter.class_axes:
            changed[name] = change(changed[name], axis)
    return changed


@pytest.mark.parametrize("the_map", ALL)
def test_output_rows_are_probabilities(the_map: Map) -> None:
    """Rows are non-negative and sum to one; the result is float64."""
    for rows, classes in SIZES:
        result = reference(the_map, some_parameters(the_map, classes), some_logits(rows, classes))
        assert result.dtype == np.float64
        assert result.shape == (rows, classes)
        assert (result >= 0).all()
        np.testing.assert_allclose(result.sum(axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("the_map", ALL)
def test_onnx_agrees_with_the_reference(the_map: Map) -> None:
    """float32 onnxruntime agrees with float64 NumPy, for every size, from float16 and float32.

    The bound: rounding a logit of size r to float32 moves it by r/2²⁴, and a probability by the
    same relative amount, hence the factor on the range of the row's calibrated logits.
    """
    dtypes = [np.float32, np.float16, np.float32, np.float16]
    for (rows, classes), dtype in zip([*SIZES, (7, 10)], dtypes, strict=True):
        check_onnx(the_map, rows, classes, dtype)


def check_onnx(the_map: Map, rows: int, classes: int, dtype: type) -> None:
    logits = some_logits(rows, classes, dtype=dtype)
    calibrator = calibrator_of(the_map, classes)
    expected = calibrator.predict_float64(logits)
    result = calibrator.predict(logits)
    assert result.dtype == np.float32
    logs = log_reference(the_map, calibrator.parameters, logits.astype(np.float64))
    span = np.ptp(logs, axis=1, keepdims=True)
    close = np.abs(result - expected) <= 1e-6 * (1 + span) * expected + 1e-6
    if not the_map.continuous:
        close |= next_to_a_jump(the_map, calibrator.parameters, logits)
    assert close.all(), (rows, classes, dtype)


@pytest.mark.parametrize("the_map", ALL)
def test_torch_agrees_with_the_reference(the_map: Map) -> None:
    from recalib.ops.torch_ops import TorchOps

    ops = TorchOps()
    for rows, classes in SIZES:
        logits = some_logits(rows, classes)
        parameters = some_parameters(the_map, classes)
        constants = the_map.constants(ops, parameters)
        result = the_map.probabilities(ops, ops.constant(logits), constants).numpy()
        np.testing.assert_allclose(result, reference(the_map, parameters, logits), rtol=1e-10)
        logs = the_map.log_probabilities(ops, ops.constant(logits), constants).numpy()
        np.testing.assert_allclose(logs, log_reference(the_map, parameters, logits), atol=1e-9)


@pytest.mark.parametrize("the_map", ALL)
def test_log_probabilities_are_the_logarithm_of_probabilities(the_map: Map) -> None:
    for classes in (2, 10):
        logits, parameters = some_logits(50, classes), some_parameters(the_map, classes)
        np.testing.assert_allclose(
            np.exp(log_reference(the_map, parameters, logits)),
            reference(the_map, parameters, logits),
            rtol=1e-10,
        )


@pytest.mark.parametrize("the_map", ALL)
def test_masked_classes_get_exactly_zero(the_map: Map) -> None:
    """A logit of −inf masks a class: its probability is 0 and the others sum to 1."""
    logits = some_logits(40, 10)
    masked = np.random.default_rng(2).random(logits.shape) < 0.4
    masked[:, 3] = False
    logits[masked] = -np.inf
    calibrator = calibrator_of(the_map, 10)
    for probabilities in (
        calibrator.predict(logits),
        calibrator.predict(logits.astype(np.float32)),
    ):
        assert (probabilities[masked] == 0).all()
        assert (probabilities[~masked] > 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("the_map", ALL)
def test_masking_a_class_equals_removing_it(the_map: Map) -> None:
    """For maps that transform each class separately."""
    if not the_map.passes_masks:
        pytest.skip("this map mixes classes")
    logits, parameters = some_logits(40, 10), some_parameters(the_map, 10)
    without = np.delete(logits, 4, axis=1)
    logits[:, 4] = -np.inf
    fewer = along_classes(the_map, parameters, lambda value, axis: np.delete(value, 4, axis))
    # Parameters over the largest logits lose the last one.
    for name, parameter in the_map.parameters(9).items():
        fewer[name] = fewer[name][tuple(slice(length or None) for length in parameter.shape)]
    result = np.delete(reference(the_map, parameters, logits), 4, axis=1)
    np.testing.assert_allclose(result, reference(the_map, fewer, without), rtol=1e-12)


@pytest.mark.parametrize("the_map", ALL)
def test_permuting_classes_permutes_the_result(the_map: Map) -> None:
    """Parameters with class axes are permuted with the classes."""
    logits, parameters = some_logits(30, 10), some_parameters(the_map, 10)
    order = np.random.default_rng(3).permutation(10)
    moved = along_classes(the_map, parameters, lambda value, axis: np.take(value, order, axis))
    np.testing.assert_allclose(
        reference(the_map, moved, logits[:, order]),
        reference(the_map, parameters, logits)[:, order],
        rtol=1e-12,
    )


@pytest.mark.parametrize("the_map", ALL)
def test_shift_invariance_is_as_declared(the_map: Map) -> None:
    logits, parameters = some_logits(30, 10), some_parameters(the_map, 10)
    shifted = reference(the_map, parameters, logits + 5)
    same = np.allclose(shifted, reference(the_map, parameters, logits), rtol=1e-9)
    assert same == the_map.shift_invariant


@pytest.mark.parametrize("the_map", ALL)
def test_accuracy_preservation_is_as_declared(the_map: Map) -> None:
    logits = some_logits(2000, 10)
    changed = sum(
        (
            reference(the_map, some_parameters(the_map, 10, seed), logits).argmax(axis=1)
            != logits.argmax(axis=1)
        ).sum()
        for seed in range(5)
    )
    # A map that does not declare it must change at least one prediction.
    assert (changed == 0) == the_map.preserves_accuracy


@pytest.mark.parametrize("the_map", ALL)
def test_saved_calibrator_loads_unchanged(the_map: Map, tmp_path) -> None:
    for classes in (2, 100):
        calibrator = calibrator_of(the_map, classes)
        calibrator.save(tmp_path / "one.calib")
        loaded = Calibrator.load(tmp_path / "one.calib")
        assert loaded.card == calibrator.card
        assert loaded.map == calibrator.map
        logits = some_logits(5, classes)
        np.testing.assert_array_equal(loaded.predict(logits), calibrator.predict(logits))
        assert [file.name for file in tmp_path.iterdir()] == ["one.calib"]


@pytest.mark.parametrize("the_map", ALL)
def test_onnx_graph_is_valid_small_and_without_local_paths(the_map: Map) -> None:
    calibrator = calibrator_of(the_map, 10)
    onnx.checker.check_model(onnx.load_from_string(calibrator.to_onnx()), full_check=True)
    graph = calibrator.to_onnx(probabilities_only=True)
    model = onnx.load_from_string(graph)
    numbers = sum(values.size for values in some_parameters(the_map, 10).values())
    assert len(graph) < 7_000 + 4 * numbers
    assert str(Path(recalib.__file__).parent).encode() not in graph
    assert not any(node.doc_string for node in model.graph.node)
    assert [value.name for value in model.graph.input] == ["logits"]
    assert [value.name for value in model.graph.output] == ["probabilities"]


@pytest.mark.parametrize("the_map", ALL)
def test_invalid_parameters_are_rejected(the_map: Map) -> None:
    good = some_parameters(the_map, 10)
    with pytest.raises(CorruptError, match="parameters"):
        the_map.check(10, {**good, "extra": np.ones(1)})
    for name, value in good.items():
        negative = [] if the_map.parameters(10)[name].link == "real" else [-value - 0.1]
        for bad, word in (
            (np.full_like(value, np.nan), "finite"),
            *(
                (value, r"positive|weights|\[0, 1\]|rising|ascending|logarithm")
                for value in negative
            ),
            (np.ones((3, 2, 1, 1)), "shape"),
        ):
            with pytest.raises(CorruptError, match=word):
                the_map.check(10, {**good, name: bad})


def test_temperature_zero_is_rejected() -> None:
    with pytest.raises(CorruptError, match="temperature is not positive"):
        MAPS["temperature"]().check(10, {"temperature": np.array(0.0)})


@dataclass(frozen=True)
class Mixing(Map):
    """Add the sum of all logits to each: like a matrix map, it spreads a mask to all classes."""

    name: ClassVar[str] = "mixing"
    summary: ClassVar[str] = "only for this test"
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = False

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {}

    def start(self, classes: int, temperature: float) -> dict[str, np.ndarray]:
        return {}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return logits + ops.sum(logits)


def test_masks_are_replaced_for_maps_that_mix_classes() -> None:
    """Without the guard, one −inf would make its row NaN, on every backend."""
    import onnxruntime

    from recalib.ops.onnx_ops import OnnxOps
    from recalib.ops.torch_ops import TorchOps

    logits = some_logits(20, 5)
    logits[:, 2] = -np.inf
    expected = reference(Mixing(), {}, logits)
    assert (expected[:, 2] == 0).all()
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    torch_ops = TorchOps()
    by_torch = Mixing().probabilities(torch_ops, torch_ops.constant(logits), {}).numpy()
    np.testing.assert_allclose(by_torch, expected, rtol=1e-12)
    onnx_ops = OnnxOps()
    graph = onnx_ops.model(
        Mixing().probabilities(onnx_ops, onnx_ops.input("logits"), {}), classes=5
    )
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    (by_onnx,) = session.run(None, {"logits": logits.astype(np.float32)})
    np.testing.assert_allclose(by_onnx, expected, atol=1e-5)
