"""Fits on a device of torch: in chunks, with the optimum of NumPy's path."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import recalib
from recalib.core.arrays import check_weights
from recalib.errors import InputError
from recalib.fitting import device_rows
from recalib.fitting.problem import Problem
from recalib.fitting.request import configure_pair
from recalib.fitting.solvers import solve
from recalib.maps import MAPS
from tests.fitting.conftest import draw

_CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
)
_LINEAR = (
    "temperature", "class_temperature", "vector", "matrix", "dirichlet", "structured_vector",
    "structured_matrix",
)  # fmt: skip


def masked(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of float32 with masked classes, and labels of others."""
    logits, labels = draw(rows, classes, 2.0)
    out = np.random.default_rng(1).random(logits.shape) < 0.1
    out[np.arange(rows), labels] = False
    return np.where(out, -np.inf, logits).astype(np.float32), labels


def assert_same_optimum(name: str, objective: str, data, weights, device: str) -> None:
    problem = Problem(*configure_pair(name, objective, {}), *data, weights)
    ours = solve(problem)
    theirs = solve(Problem(problem.map, problem.objective, *data, weights, device=device))
    assert theirs.converged
    assert theirs.objective == pytest.approx(ours.objective, abs=1e-9)
    for parameter, value in ours.parameters.items():
        np.testing.assert_allclose(theirs.parameters[parameter], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", _CUDA])
@pytest.mark.parametrize("name", _LINEAR)
def test_same_optimum_in_many_chunks(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With masked classes and weights, in chunks of 100 rows: the last has fewer."""
    monkeypatch.setattr(device_rows, "_CPU_ELEMENTS", 600)
    monkeypatch.setattr(device_rows, "_GPU_ELEMENTS", 600)
    weights = check_weights(np.random.default_rng(2).random(950), rows=950)
    assert_same_optimum(name, "nll", masked(950, 6), weights, device)


def test_rows_that_fit_are_copied_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_rows, "_CPU_ELEMENTS", 600)
    data = masked(950, 6)
    copied = []
    copy = device_rows.as_tensor

    def counted(array: np.ndarray | torch.Tensor) -> torch.Tensor:
        if isinstance(array, np.ndarray) and array.ndim == 2:
            copied.append(len(array))
        return copy(array)

    monkeypatch.setattr(device_rows, "as_tensor", counted)
    assert_same_optimum("vector", "nll", data, None, "cpu")
    assert len(copied) > 10
    copied.clear()
    monkeypatch.setattr(device_rows, "_free_bytes", lambda _: 4 * data[0].nbytes)
    assert_same_optimum("vector", "nll", data, None, "cpu")
    assert copied
    assert set(copied) == {950}
    assert len(copied) < 5


@pytest.mark.parametrize("device", ["cpu", _CUDA])
@pytest.mark.parametrize(
    "name", ["matrix", pytest.param("structured_matrix", marks=pytest.mark.slow)]
)
def test_same_optimum_of_many_classes(name: str, device: str) -> None:
    """Above 40 classes, the preconditioner shares one matrix; above 200,000 logits, float32."""
    logits, labels = draw(5_000, 45, 1.5)
    assert_same_optimum(name, "nll", (logits.astype(np.float32), labels), None, device)


@pytest.mark.parametrize("device", ["cpu", _CUDA])
@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("temperature", "brier"), ("vector", "label_smoothing"), ("class_temperature", "focal"),
        ("ensemble_temperature", "brier"), ("ensemble_temperature", "nll"),
    ],
)  # fmt: skip
def test_same_optimum_by_gradient(
    name: str, objective: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_rows, "_CPU_ELEMENTS", 600)
    assert_same_optimum(name, objective, masked(950, 6), None, device)


@pytest.mark.parametrize("device", ["cpu", _CUDA])
@pytest.mark.parametrize("name", ["parameterized_temperature", "intra_order_preserving"])
def test_networks_reach_the_same_objective(name: str, device: str) -> None:
    """They are not convex: their numbers may differ, what they reach does not."""
    data = masked(950, 6)
    problem = Problem(*configure_pair(name, "nll", {}), *data)
    theirs = solve(Problem(problem.map, problem.objective, *data, device=device))
    assert theirs.objective == pytest.approx(solve(problem).objective, abs=1e-4)


@pytest.mark.parametrize("device", [None, "cpu", _CUDA])
def test_read_only_arrays_are_accepted(device: str | None) -> None:
    """As data frames and mapped files give them; torch warns of a tensor on such memory."""
    logits, labels = draw(300, 4, 2.0)
    for array in (logits, labels):
        array.flags.writeable = False
    torch.set_warn_always(True)
    try:
        fitted = recalib.fit(logits, labels, objective="brier", input="logits", device=device)
    finally:
        torch.set_warn_always(False)
    assert fitted.parameters["temperature"] > 0


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_extreme_scales_fit_on_a_device(scale: float) -> None:
    logits, labels = draw(300, 4, 2.0)
    ours, theirs = (
        recalib.fit(logits * scale, labels, input="logits", device=device).parameters
        for device in (None, "cpu")
    )
    assert theirs["temperature"] == pytest.approx(ours["temperature"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "isotonic"}, "^device: found 'cpu' with the map isotonic; .*temperature"),
        ({"map": "identity"}, "^device: found 'cpu' with the map identity"),
        ({"map": "auto"}, "^device: found map auto"),
        ({"objective": "sb_ece"}, "^device: .*objective sb_ece; .* an objective of nll, "),
        ({"objective": "classwise_scaled_nll"}, "^device: .*objective classwise_scaled_nll"),
        ({"device": "tpu7"}, "^device: found 'tpu7'; accepted: cpu, cuda"),
        ({"device": "mps"}, "^device: found 'mps'; .*float64"),
        ({"device": "cuda:99"}, r"^device: found 'cuda:99', and \d+ GPUs"),
    ],
)
def test_unsupported_requests_are_rejected(options: dict[str, str], message: str) -> None:
    logits, labels = draw(30, 3, 1.0)
    with pytest.raises(InputError, match=message):
        recalib.fit(logits, labels, **{"device": "cpu", **options})


def test_every_map_on_a_device_has_a_test() -> None:
    tested = {*_LINEAR, "ensemble_temperature", "parameterized_temperature"}
    by_gradient = {name for name, of in MAPS.items() if of.fitted_by == "gradient"}
    assert tested | {"intra_order_preserving", "identity"} == by_gradient


_MEMORY = """
import resource, sys
import numpy as np
import recalib
from recalib.fitting import device_rows

device_rows._CPU_ELEMENTS = 50_000
rows = int(sys.argv[1])
rng = np.random.default_rng(0)
logits = 3 * rng.standard_normal((rows, 250), dtype=np.float32)
labels = rng.integers(0, 250, rows)
recalib.fit(logits[:1000], labels[:1000], "vector", input="logits", device="cpu")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
recalib.fit(logits, labels, "vector", input="logits", device="cpu")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows() -> None:
    """Of 40,000 rows, 40 MB of logits, a single copy in float64 has 80 MB."""
    kilobytes = [
        int(subprocess.check_output([sys.executable, "-c", _MEMORY, str(rows)], timeout=500))
        for rows in (5_000, 40_000)
    ]
    assert kilobytes[1] - kilobytes[0] < 40_000
