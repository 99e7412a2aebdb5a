"""Verify on random input that a fused graph equals the model followed by the calibrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats
from recalib.errors import InputError
from recalib.files import Input
from recalib.ops import NumpyOps
from recalib.sets.rejection import accepts

if TYPE_CHECKING:
    from recalib.onnx_fusion.append import AppendedModel

#: Batch sizes, if the model leaves the batch size free.
_BATCHES = (32, 1, 7)
#: Standard deviations of random floats: for logits of low, usual and high confidence.
_SCALES = (0.1, 1.0, 10.0)
_ROUNDS = 6
#: Non-negative rows with sums this close to 1 look like probabilities.
_SUM_TOLERANCE = 1e-2

#: Rounding to float16: half a unit in the last of 11 binary digits, doubled because the model may
#: round once more; and the smallest positive float16.
_HALF, _HALF_SMALLEST = 2.0**-11 * 3, 2.0**-24

_FLOATS = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
#: 0 and 1 are valid token ids, masks and types; bytes are mostly pixels.
_INTEGERS: dict[str, tuple[Any, int]] = {
    "tensor(int64)": (np.int64, 2),
    "tensor(int32)": (np.int32, 2),
    "tensor(bool)": (np.bool_, 2),
    "tensor(uint8)": (np.uint8, 256),
    "tensor(int8)": (np.int8, 128),
}


@dataclass(frozen=True)
class Proof:
    """The result of the verification."""

    #: Number of rows compared.
    rows: int
    #: The largest difference of a probability.
    difference: float
    #: The largest difference divided by its bound; at most 1.
    share: float
    warnings: tuple[str, ...] = ()


class Runtime:
    """A model in onnxruntime, on the CPU.

    Parameters
    ----------
    data: the model.
    folder: the folder of weights in other files.

    Raises
    ------
    InputError: onnxruntime cannot load or run it.
    """

    def __init__(self, data: bytes, folder: Path) -> None:
        from recalib.calibrator.ort import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised; do not log them too
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.resolve())
        )
        try:
            self._session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors share no other base
            raise _model_error("load", error) from None

    @property
    def inputs(self) -> list[Any]:
        """The required inputs: name, type and shape."""
        return self._session.get_inputs()

    def run(self, output: str, feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return one output."""
        try:
            (value,) = self._session.run([output], dict(feed))
        except Exception as error:  # its errors share no other base
            raise _model_error("run", error) from None
        return np.asarray(value)


def prove(
    original: Runtime,
    runtime: Runtime,
    calibrator: Calibrator,
    *,
    source: str,
    fused: AppendedModel,
    input: Input,
    shapes: Mapping[str, Sequence[int]],
) -> Proof:
    """Compare `runtime`, the fused graph, with `original` followed by `calibrator`.

    A probability p of a row whose calibrated log-probabilities span r may differ by
    10⁻⁶ (1 + r) p + 10⁻⁶: the rounding of a logit of size r to float32 moves it by r / 2²⁴, and p
    by as much, relatively.

    On a CPU, onnxruntime computes float16 in float32 and rounds only the outputs of the graph, so
    the appended nodes get more digits than the model's output has. For float16, `runtime` returns
    this unrounded input. It must round to the model's output, and the calibrator is applied to it.

    Raises
    ------
    InputError: an input cannot be generated, the calibrator does not accept the output, or a
        difference exceeds the bound.
    """
    rng = np.random.default_rng(0)
    rows, difference, share, alike = 0, 0.0, 0.0, True
    for round in range(_ROUNDS):
        feed = _feed(original, round, shapes, rng)
        raw = original.run(source, feed)
        _check(raw, source, calibrator.card.classes)
        usable = _usable(raw)
        if not usable.any():
            continue
        unrounded = _unrounded_input(raw, runtime, fused, feed) if fused.half else raw
        logits = calibrator.to_logits(unrounded[usable], input)
        actual = runtime.run(fused.probabilities, feed)[usable]
        expected, allowed = _expected_probabilities(calibrator, logits)
        if fused.sets is not None:
            members = runtime.run(fused.sets, feed)[usable]
            _check_equal("sets", members, calibrator.sets_of(actual, logits))
        if fused.accepted is not None and calibrator.card.rejection is not None:
            accepted = runtime.run(fused.accepted, feed)[usable]
            rule = accepts(actual, calibrator.card.rejection)
            _check_equal("accepted rows", accepted, rule[:, None])
        error = np.abs(actual - expected)
        if fused.intervals is not None:
            ends = runtime.run(fused.intervals, feed)[usable] - calibrator.intervals_of(logits)
            error = np.maximum(error, np.abs(ends).max(axis=2))
        rows += len(expected)
        difference = max(difference, float(error.max()))
        share = max(share, float((error / allowed).max()))
        alike &= _like_probabilities(raw)
    if rows == 0:
        raise InputError(
            f"model output {source}", found="NaN or inf on random input", accepted="finite numbers"
        )
    if not share <= 1:  # NaN as well
        raise InputError(
            "model",
            found=f"a fused graph that is {difference:.3g} away from the calibrator, {share:.3g} "
            "times what rounding explains (is the model random, or float64 with large logits?)",
            accepted="a model that onnxruntime gives the same answers for, in float32",
        )
    warnings = []
    if input == "logits" and alike:
        warnings.append(
            f"rows of {source} are probabilities on random input, and were taken as logits: "
            "if it ends in a softmax, say that its output is probabilities"
        )
    return Proof(rows, difference, share, tuple(warnings))


def _check_equal(name: str, actual: NDArray[Any], expected: NDArray[np.bool_]) -> None:
    if different := np.count_nonzero((actual != expected).any(axis=1)):
        raise InputError(
            "model",
            found=f"a fused graph with other {name} than the calibrator's, for {different} rows",
            accepted="a model that onnxruntime gives the same answers for",
        )


def _feed(
    runtime: Runtime,
    round: int,
    shapes: Mapping[str, Sequence[int]],
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Return random values for every input."""
    names = [input.name for input in runtime.inputs]
    for name in shapes:
        if name not in names:
            raise InputError("shape", found=repr(name), accepted=f"inputs: {', '.join(names)}")
    batch, scale = _BATCHES[round % 3], _SCALES[round // 2]
    return {
        input.name: _random(input, shapes.get(input.name) or _shape(input, batch), scale, rng)
        for input in runtime.inputs
    }


def _shape(input: Any, batch: int) -> list[int]:
    """Return the declared shape of the input, with `batch` rows if their number is free."""
    shape = list(input.shape)
    if shape and not isinstance(shape[0], int):
        shape[0] = batch
    free = [str(axis) for axis, size in enumerate(shape) if not isinstance(size, int)]
    if free:
        shape_text = "x".join(str(size) if isinstance(size, int) else "?" for size in input.shape)
        raise InputError(
            f"model input {input.name}",
            found=f"axis {', '.join(free)} free in {shape_text}",
            accepted=f"a shape to try: --shape {input.name}={shape_text}, with numbers for the ?",
        )
    return shape


def _random(
    input: Any, shape: Sequence[int], scale: float, rng: np.random.Generator
) -> NDArray[Any]:
    if input.type in _FLOATS:
        return np.asarray(rng.normal(scale=scale, size=shape)).astype(_FLOATS[input.type])
    if input.type in _INTEGERS:
        dtype, end = _INTEGERS[input.type]
        return rng.integers(0, end, shape).astype(dtype)
    types = ", ".join((*_FLOATS, *_INTEGERS))
    raise InputError(f"model input {input.name}", found=input.type, accepted=types)


def _check(raw: NDArray[Any], source: str, classes: int) -> None:
    # The file may not declare these.
    if raw.ndim != 2 or raw.shape[1] != classes:
        raise InputError(
            f"model output {source}", found=f"shape {raw.shape}", accepted=f"(N, {classes})"
        )


def _unrounded_input(
    raw: NDArray[Any], runtime: Runtime, fused: AppendedModel, feed: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the unrounded input of the calibrator's nodes; `InputError` if it is not `raw`."""
    unrounded = runtime.run(fused.entrance, feed)
    if not np.allclose(unrounded, raw, rtol=_HALF, atol=_HALF_SMALLEST, equal_nan=True):
        raise InputError(
            "model", found="other logits in the fused graph", accepted="a deterministic model"
        )
    return unrounded


def _usable(raw: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask (N,) of the rows without overflow in the model, which float16 has."""
    invalid = np.isnan(raw) | np.isposinf(raw)
    return ~invalid.any(axis=1) & ~np.isneginf(raw).all(axis=1)


def _expected_probabilities(
    calibrator: Calibrator, logits: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the reference probabilities and the bound of the difference from them."""
    expected = calibrator.predict_float64(logits)
    ops = NumpyOps()
    masked = calibrator.apply_mask(ops, logits.astype(np.float64, copy=False))
    logs = calibrator.map.log_probabilities(ops, masked, calibrator.parameters)
    lowest = np.where(np.isfinite(logs), logs, np.inf).min(axis=1, keepdims=True)
    span = logs.max(axis=1, keepdims=True) - lowest
    return expected, 1e-6 * (1 + span) * expected + 1e-6


def _like_probabilities(raw: NDArray[Any]) -> bool:
    sums = raw.sum(axis=1, dtype=np.float64)
    return bool((raw >= 0).all() and (np.abs(sums - 1) < _SUM_TOLERANCE).all())


def _model_error(verb: str, error: Exception) -> InputError:
    message = " ".join(str(error).split())
    return InputError(
        "model",
        found=f"a graph that onnxruntime cannot {verb} ({message})",
        accepted=f"a graph that it can {verb}",
    )
