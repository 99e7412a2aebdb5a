"""Parameterized temperature scaling: positive temperatures, active units, limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.fitting.fit import fit
from recalib.fitting.newton import fit_temperature
from recalib.maps.parameterized_temperature import ParameterizedTemperature
from recalib.metrics.evaluate import evaluate
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw

Floats = NDArray[np.float64]
NAME = "parameterized_temperature"
MAP = ParameterizedTemperature()


def truth_of(logits: Floats) -> Floats:
    """T of each row: 1 with a clear winner, 4 without."""
    second, first = np.sort(logits, axis=1)[:, -2:].T
    return 2 * np.exp(np.log(2) * np.tanh((3 - first + second) / 2))


def by_row(rows: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Labels from softmax(z / T), T that of `truth_of`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, 5)) * 4
    scaled = logits / truth_of(logits)[:, None]
    return logits, (scaled + rng.gumbel(size=logits.shape)).argmax(axis=1)


def wild(classes: int, seed: int) -> dict[str, Floats]:
    """Parameters far outside the range of fits."""
    rng = np.random.default_rng(seed)
    start = MAP.start(classes, 2.0)
    return {
        name: value if name == "temperature" else rng.normal(size=value.shape) * 100
        for name, value in start.items()
    }


def temperatures(logits: Floats, parameters: dict[str, Floats]) -> Floats:
    """T of each row, from the change of its two largest logits."""
    scaled = MAP.transform(NumpyOps(), logits, parameters)
    ends = np.sort(logits, axis=1)[:, [-2, -1]], np.sort(scaled, axis=1)[:, [-2, -1]]
    return np.diff(ends[0])[:, 0] / np.diff(ends[1])[:, 0]


def units(logits: Floats, parameters: dict[str, Floats]) -> Floats:
    """Hidden units (N, h), from the formula in the docstring, one row at a time."""
    actual = []
    for row in logits:
        largest = sorted(row.tolist(), reverse=True)[: MAP.top]
        gaps = [(largest[0] - value) / (20 * float(parameters["temperature"])) for value in largest]
        features = np.array([max(1 - gap, 0) for gap in gaps])
        actual.append(np.tanh(features @ parameters["input"] + parameters["bias"]))
    return np.array(actual)


def nll(calibrator: Calibrator, logits: Floats, labels: NDArray[np.int64]) -> float:
    probabilities = calibrator.predict_float64(logits)
    return evaluate(labels, probabilities=probabilities, metrics=["nll"])["nll"].value


@pytest.mark.parametrize("classes", [2, 5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_matches_the_formula_row_by_row(classes: int, seed: int) -> None:
    logits, _ = draw(50, classes, 1.0, seed)
    parameters = MAP.start(classes, 1.7)
    parameters["output"] = np.random.default_rng(seed).normal(size=(8, 1))
    change = np.tanh(units(logits, parameters) @ parameters["output"])[:, 0]
    np.testing.assert_allclose(
        temperatures(logits, parameters), 1.7 * np.exp(2 * change), rtol=1e-9
    )


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("classes", [2, 5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_every_temperature_is_positive(classes: int, scale: float, seed: int) -> None:
    """Within a factor of e² of T₀, for all parameters and rows."""
    logits, _ = draw(50, classes, 1.0, seed)
    result = temperatures(logits * scale, wild(classes, seed))
    assert (result >= 2 * np.exp(-2) * (1 - 1e-9)).all()
    assert (result <= 2 * np.exp(2) * (1 + 1e-9)).all()


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_start_equals_temperature_scaling(classes: int) -> None:
    logits, _ = draw(50, classes, 1.0)
    result = MAP.transform(NumpyOps(), logits, MAP.start(classes, 2.5))
    np.testing.assert_allclose(result, logits / 2.5, rtol=1e-15)


@pytest.mark.parametrize("seed", [0])
def test_row_temperatures_are_recovered(seed: int) -> None:
    """From 4,000 rows, on others: of what one temperature loses against the truth, a quarter at
    most; and a row's temperature is off by a seventh on average, where one is off by half."""
    single, calibrator = fit(*by_row(4000, seed)), fit(*by_row(4000, seed), NAME)
    logits, labels = by_row(4000, seed + 100)
    truth = truth_of(logits)
    best = -NumpyOps().log_softmax(logits / truth[:, None])[np.arange(4000), labels].mean()
    assert nll(calibrator, logits, labels) - best < (nll(single, logits, labels) - best) / 4
    off = np.abs(np.log(temperatures(logits, calibrator.parameters) / truth))
    assert off.mean() < 0.15


def test_hidden_units_are_active_after_a_fit() -> None:
    """Every unit differs between rows: the published network's are 0 for all of them."""
    logits, labels = by_row(2000)
    calibrator = fit(logits, labels, NAME)
    assert calibrator.card.fit.converged
    assert (units(logits, calibrator.parameters).std(axis=0) > 1e-3).all()
    assert np.std(temperatures(logits, calibrator.parameters)) > 0.1


def test_fit_is_deterministic() -> None:
    logits, labels = by_row(500)
    first, second = fit(logits, labels, NAME), fit(logits, labels, NAME)
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name])


@pytest.mark.parametrize("rows", [20, 200])
def test_few_rows_stay_near_temperature_scaling(rows: int) -> None:
    """Where one is the truth: on average over ten draws, within half a percent of its likelihood
    on others. A single draw may go either way."""
    logits, labels = draw(5_000, 5, 2.0, 99)
    losses = []
    for seed in range(10):
        thin = draw(rows, 5, 2.0, seed)
        losses.append([nll(fit(*thin, map), logits, labels) for map in ("temperature", NAME)])
    single, calibrator = np.mean(losses, axis=0)
    assert calibrator <= single * 1.005


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_fewer_classes_than_network_inputs(classes: int) -> None:
    logits, labels = draw(300, classes, 2.0)
    calibrator = fit(logits, labels, NAME)
    assert calibrator.parameters["input"].shape == (min(classes, 10), 8)
    assert (temperatures(logits, calibrator.parameters) > 0).all()
    single = fit_temperature(logits, labels)
    assert nll(calibrator, logits, labels) <= single.nll + 1e-9


def test_masked_classes_equal_the_largest_gap() -> None:
    """A masked class equals a logit below the network's range."""
    logits, labels = draw(300, 6, 2.0)
    out = np.random.default_rng(1).random(logits.shape) < 0.4
    out[np.arange(300), labels] = False
    masked, low = np.where(out, -np.inf, logits), np.where(out, -500, logits)
    calibrator = fit(masked, labels, NAME)
    p = calibrator.predict_float64(masked)
    assert (p[out] == 0).all()
    np.testing.assert_allclose(p, calibrator.predict_float64(low), atol=1e-12)
    # Both fits stop within 1e-6 of the least value, which a flat direction makes 1e-3 of p.
    again = fit(low, labels, NAME)
    assert again.card.fit.objective == pytest.approx(calibrator.card.fit.objective, abs=1e-6)
    np.testing.assert_allclose(p, again.predict_float64(low), atol=1e-3)


def test_real_logits_give_the_published_result(real_data: Path) -> None:
    """Test likelihood not above plain temperature's by more than half a percent: it is below."""
    splits = []
    for name in ("val", "test"):
        with np.load(real_data / f"resnet110-cifar10-{name}.npz") as file:
            splits.append((file["logits"], file["labels"]))
    single, calibrator = fit(*splits[0]), fit(*splits[0], NAME)
    assert nll(calibrator, *splits[1]) <= nll(single, *splits[1]) * 1.005
    rows = splits[1][0].astype(np.float64)
    assert (rows.argmax(axis=1) == calibrator.predict_float64(rows).argmax(axis=1)).all()
    assert (temperatures(rows, calibrator.parameters) > 0).all()
    assert (units(rows[:500], calibrator.parameters).std(axis=0) > 1e-3).all()
