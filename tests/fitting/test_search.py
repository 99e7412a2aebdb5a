"""Searches: global minimum, degenerate objectives, and bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.fitting import objective_sums
from recalib.fitting.fit import fit
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Bound, Problem, Solution
from recalib.fitting.request import configure_pair
from recalib.fitting.search import (
    search_class_grid,
    search_coordinates,
    search_grid,
    search_temperature,
)
from recalib.fitting.solvers import solve
from recalib.metrics.evaluate import evaluate
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw

Floats = NDArray[np.float64]

#: Soft and hard bins; narrow and hard bins are rough functions of temperature.
SEARCHED: list[tuple[str, dict[str, Any]]] = [
    ("sb_ece", {}),
    ("sb_ece", {"order": 1.0}),
    ("sb_ece", {"bin_temperature": 1e-4}),
    ("sb_ece", {"variant": "label_binned"}),
    ("hb_ece", {}),
    ("hb_ece", {"order": 2.0}),
]


def problem_of(map: str, name: str, logits: Floats, labels: Any, **options: Any) -> Problem:
    the_map, objective = configure_pair(map, name, options)
    return Problem(the_map, objective, logits, labels)


def temperature_of(solution: Solution) -> float:
    return float(solution.parameters["temperature"])


def curve(objective: Any, logits: Floats, labels: Any, temperatures: Floats) -> Floats:
    """The objective at each temperature, from scipy's softmax and the equations of paper 000."""
    bins, order = objective.bins, objective.order
    right = (logits.argmax(axis=1) == labels).astype(np.float64)
    values = []
    for temperature in temperatures:
        c = scipy.special.softmax(logits / temperature, axis=1).max(axis=1)
        if objective.name == "hb_ece":
            u = np.eye(bins)[np.clip(np.ceil(c * bins).astype(int) - 1, 0, bins - 1)]
        else:
            centres = (np.arange(bins) + 0.5) / bins
            squares = (c[:, None] - centres) ** 2
            u = scipy.special.softmax(-squares / objective.bin_temperature, axis=1)
        size = u.sum(axis=0)
        u, size = u[:, size > 0], size[size > 0]
        accuracy, confidence = right @ u / size, c @ u / size
        if getattr(objective, "variant", "binned") == "binned":
            powers = size * np.abs(accuracy - confidence) ** order
        else:
            powers = u * np.abs(accuracy - c[:, None]) ** order
        values.append((powers.sum() / len(c)) ** (1 / order))
    return np.array(values)


@pytest.mark.parametrize(
    ("rows", "classes"), [(150, 5), pytest.param(100, 2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("name", "options"), SEARCHED)
def test_no_grid_temperature_is_better(
    name: str, options: dict[str, Any], rows: int, classes: int
) -> None:
    """400 of them, seven in a thousand apart, by another implementation.

    The search ends with steps of 4e-5 of a temperature: what it misses of a minimum is far below
    1e-6 of it. The jumps of hard bins can be arbitrarily narrow, so a search may miss some.
    """
    logits, labels = draw(rows, classes, 2.0)
    problem = problem_of("temperature", name, logits, labels, **options)
    result = search_temperature(problem)
    middle = fit_temperature(logits, labels).temperature
    range_of_it = middle * np.exp(np.linspace(-np.log(4), np.log(4), 400))
    values = curve(problem.objective, logits, labels, range_of_it)
    slack = 1e-6 if name == "sb_ece" else 2e-2
    assert result.objective <= values.min() * (1 + slack)
    (again,) = curve(problem.objective, logits, labels, np.array([temperature_of(result)]))
    assert result.objective == pytest.approx(again, rel=1e-7)
    assert not result.warnings
    assert not result.bounds


@pytest.mark.parametrize(("name", "options"), SEARCHED[2:5])
def test_temperature_scales_with_the_logits(name: str, options: dict[str, Any]) -> None:
    """A search that started at temperature 1 would fail this test."""
    logits, labels = draw(100, 5, 2.0)
    single = search_temperature(problem_of("temperature", name, logits, labels, **options))
    for scale in (1e-6, 4000.0):
        problem = problem_of("temperature", name, logits * scale, labels, **options)
        scaled = search_temperature(problem)
        assert scaled.objective == pytest.approx(single.objective, rel=1e-4)
        assert temperature_of(scaled) == pytest.approx(temperature_of(single) * scale, rel=1e-4)


@pytest.mark.parametrize("start", [0.01, pytest.param(1.0, marks=pytest.mark.slow), 300.0])
@pytest.mark.parametrize("name", ["sb_ece", "hb_ece"])
def test_every_warm_start_reaches_the_same_optimum(name: str, start: float) -> None:
    logits, labels = draw(150, 5, 2.0)
    cold = problem_of("temperature", name, logits, labels)
    warm = replace(cold, start={"temperature": np.array(start)})
    assert temperature_of(solve(warm)) == temperature_of(solve(cold))


@pytest.mark.parametrize("name", ["sb_ece", "hb_ece", "ece_grid"])
def test_weight_two_equals_a_duplicate_row(name: str) -> None:
    logits, labels = draw(120, 5, 2.0)
    weights = np.where(np.arange(120) % 3 == 0, 2.0, 1.0)
    copies = np.repeat(np.arange(120), weights.astype(np.int64))
    weighted = replace(
        problem_of("temperature", name, logits, labels), weights=weights / weights.mean()
    )
    repeated = problem_of("temperature", name, logits[copies], labels[copies])
    first, second = solve(weighted), solve(repeated)
    assert first.objective == pytest.approx(second.objective, rel=1e-4)
    assert temperature_of(first) == pytest.approx(temperature_of(second), rel=1e-3)


def test_large_inputs_are_searched_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The temperature is the same to 1e-4: confidences are right to 1e-6, and the objective's
    curvature there is of the order of 1."""
    logits, labels = draw(500, 20, 2.0)
    problem = problem_of("temperature", "sb_ece", logits, labels)
    wide = search_temperature(problem)
    monkeypatch.setattr(objective_sums, "_MAX_VALUES", 0)
    narrow = search_temperature(problem)
    assert narrow.objective != wide.objective
    assert narrow.objective == pytest.approx(wide.objective, abs=1e-6)
    assert temperature_of(narrow) == pytest.approx(temperature_of(wide), rel=1e-4)


def accurate(rows: int, classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Rows with accuracy over 80% and overconfident logits."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, classes)) * 3
    logits[np.arange(rows), rng.integers(0, classes, rows)] += 8 + classes
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.mark.parametrize(("rows", "classes"), [(200, 2), (300, 10)])
def test_degenerate_objective_falls_back_to_nll(rows: int, classes: int) -> None:
    """Label-binned soft bins of width 0.1: the minimum is near confidence 1 everywhere."""
    logits, labels = accurate(rows, classes)
    options = {"variant": "label_binned", "bin_temperature": 0.1}
    problem = problem_of("temperature", "sb_ece", logits, labels, **options)
    nll = fit_temperature(logits, labels).temperature
    sharper, value = curve(problem.objective, logits, labels, np.array([nll / 2, nll]))
    assert sharper < value
    card = fit(logits, labels, "temperature", "sb_ece", **options).card
    assert len(card.fit.warnings) == 1
    assert "by nll" in card.fit.warnings[0]
    assert temperature_of(solve(problem)) == nll
    assert card.fit.objective == pytest.approx(value, rel=1e-7)


def test_search_reports_the_reached_bound() -> None:
    logits, labels = accurate(200, 2)
    options = {"variant": "label_binned", "bin_temperature": 0.1}
    result = search_temperature(problem_of("temperature", "sb_ece", logits, labels, **options))
    assert temperature_of(result) == fit_temperature(logits, labels).temperature
    assert "falls towards the lower end" in result.warnings[0]


def test_degenerate_objective_is_detected_for_every_map() -> None:
    """Gradient fits compare the result with the NLL fit."""
    logits, labels = accurate(200, 2)
    options = {"variant": "label_binned", "bin_temperature": 0.1}
    calibrator = fit(logits, labels, "class_temperature", "sb_ece", **options)
    by_likelihood = fit(logits, labels, "class_temperature")
    assert any(
        "the parameters by nll were taken instead" in warning
        for warning in calibrator.card.fit.warnings
    )
    np.testing.assert_array_equal(
        calibrator.parameters["temperature"], by_likelihood.parameters["temperature"]
    )


@pytest.mark.parametrize("name", ["sb_ece", "hb_ece"])
def test_separable_rows_end_on_the_nll_bound(name: str) -> None:
    logits, _ = draw(200, 5, 2.0)
    result = solve(problem_of("temperature", name, logits, logits.argmax(axis=1)))
    assert [bound.end for bound in result.bounds] == ["lower"]
    assert temperature_of(result) == fit_temperature(logits, logits.argmax(axis=1)).temperature


class TestGrid:
    """Temperatures from 0.1 to 10 by 0.1, paper 004."""

    @pytest.mark.parametrize("seed", range(3))
    def test_result_is_the_best_grid_point(self, seed: int) -> None:
        """The metric bins independently."""
        logits, labels = draw(1000, 5, 2.0, seed)
        result = search_grid(problem_of("temperature", "ece_grid", logits, labels))
        grid = [k / 10 for k in range(1, 101)]
        eces = [
            evaluate(labels, logits=logits / temperature, metrics=["ece"])["ece"].value
            for temperature in grid
        ]
        assert temperature_of(result) == pytest.approx(grid[int(np.argmin(eces))], rel=1e-12)
        assert result.objective == pytest.approx(min(eces), rel=1e-9)
        assert not result.bounds

    @pytest.mark.parametrize(("scale", "end", "value"), [(1e-3, "lower", 0.1), (10, "upper", 10.0)])
    def test_grid_end_is_reported(self, scale: float, end: str, value: float) -> None:
        logits, labels = draw(1000, 5, 2.0)
        result = search_grid(problem_of("temperature", "ece_grid", logits * scale, labels))
        assert temperature_of(result) == pytest.approx(value)
        assert result.bounds == (Bound("temperature of the grid", end, pytest.approx(value)),)

    def test_grid_is_configurable(self) -> None:
        logits, labels = draw(1000, 5, 2.0)
        options = {"lowest": 1.0, "highest": 2.9, "step": 0.25}
        problem = problem_of("temperature", "ece_grid", logits, labels, **options)
        assert problem.objective.grid().tolist() == [1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75]
        assert temperature_of(search_grid(problem)) in problem.objective.grid()


def value_of(problem: Problem, parameters: dict[str, Floats]) -> float:
    log_p = problem.map.log_probabilities(NumpyOps(), problem.logits, parameters)
    ones = np.ones(len(log_p))
    return float(problem.objective.loss(NumpyOps(), log_p, problem.labels, ones))


def with_temperature(parameters: dict[str, Floats], k: int, value: float) -> dict[str, Floats]:
    changed = parameters["temperature"].copy()
    changed[k] = value
    return {**parameters, "temperature": changed}


@pytest.fixture
def by_class() -> tuple[Floats, NDArray[np.int64]]:
    """300 rows; each of the four classes has its own temperature."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 4)) * 3
    noisy = logits / np.array([1.0, 2.0, 2.0, 4.0]) + rng.gumbel(size=logits.shape)
    return logits, noisy.argmax(axis=1)


def test_class_grid_ends_at_a_coordinate_minimum(by_class) -> None:
    problem = problem_of("class_temperature", "ece_grid", *by_class)
    single = search_grid(problem_of("temperature", "ece_grid", *by_class))
    result = search_class_grid(problem)
    assert result.converged
    assert result.objective < single.objective
    assert result.objective == value_of(problem, result.parameters)
    grid = problem.objective.grid()
    assert np.isin(result.parameters["temperature"], grid).all()
    for k in range(4):
        for temperature in grid:
            changed = with_temperature(result.parameters, k, temperature)
            assert value_of(problem, changed) >= result.objective


def test_coordinate_search_ends_at_a_local_minimum(by_class) -> None:
    problem = problem_of("class_temperature", "hb_ece", *by_class)
    nll = fit_temperature(*by_class).temperature
    result = search_coordinates(problem)
    assert result.converged
    assert result.objective < value_of(problem, problem.map.start(4, nll)) * 0.9
    assert result.objective == value_of(problem, result.parameters)
    for k in range(4):
        for factor in np.exp([0.003, -0.003]):
            value = result.parameters["temperature"][k] * factor
            changed = with_temperature(result.parameters, k, value)
            assert value_of(problem, changed) >= result.objective


def test_coordinate_search_keeps_weights_on_the_simplex(by_class) -> None:
    result = solve(problem_of("ensemble_temperature", "hb_ece", *by_class))
    assert result.parameters["weights"].sum() == pytest.approx(1, rel=1e-12)
    assert (result.parameters["weights"] >= 0).all()
    assert float(result.parameters["temperature"]) > 0


def test_coordinate_search_uses_the_warm_start(by_class) -> None:
    """A search that starts at its own result stays there."""
    problem = problem_of("class_temperature", "hb_ece", *by_class)
    result = search_coordinates(problem)
    again = search_coordinates(replace(problem, start=result.parameters))
    assert again.objective <= result.objective
    assert again.iterations <= result.iterations


@pytest.mark.parametrize(("map", "classes"), [("class_temperature", 201), ("matrix", 14)])
def test_coordinate_search_rejects_too_many_parameters(map: str, classes: int) -> None:
    logits, labels = draw(300, classes, 2.0)
    with pytest.raises(InputError, match=f"'hb_ece' for {201 if classes > 14 else 210} parameters"):
        fit(logits, labels, map, "hb_ece")


@pytest.fixture(scope="module")
def splits(real_data: Path) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Validation and test rows of a published network."""
    splits = []
    for name in ("val", "test"):
        with np.load(real_data / f"resnet110-cifar10-{name}.npz") as file:
            splits.append((file["logits"], file["labels"]))
    return splits


class TestRealLogits:
    """ResNet-110 on CIFAR-10: fitted on validation rows, measured on test rows."""

    def measured(self, splits: Any, **options: Any) -> tuple[float, float]:
        """ECE, and its relative over equal mass of order 2, in percent."""
        (logits, labels), (test_logits, test_labels) = splits
        problem = problem_of("temperature", "sb_ece", logits, labels, **options)
        test = test_logits.astype(np.float64) / temperature_of(solve(problem))
        result = evaluate(test_labels, logits=test, metrics=["ece", "ece_l2_equal_mass"])
        return result["ece"].value * 100, result["ece_l2_equal_mass"].value * 100

    def test_default_soft_bins_beat_nll(self, splits: Any) -> None:
        """Plain temperature scaling: 1.13 and 2.08."""
        ece, equal_mass = self.measured(splits)
        assert ece < 0.70
        assert equal_mass < 1.5

    @pytest.mark.slow
    @pytest.mark.parametrize("bins", [30])
    def test_number_of_soft_bins_has_little_effect(self, bins: int, splits: Any) -> None:
        assert self.measured(splits, bins=bins)[0] < 0.85

    def test_too_wide_bins_fall_back_to_nll(self, splits: Any) -> None:
        """The least value lies at temperature 0, confidence 1 everywhere."""
        options = {"variant": "label_binned", "bin_temperature": 0.1}
        result = solve(problem_of("temperature", "sb_ece", *splits[0], **options))
        assert temperature_of(result) == fit_temperature(*splits[0]).temperature
        assert "falls towards the lower end" in result.warnings[0]
