"""Ensemble temperature scaling against its formulas, and on the data of its papers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import scipy.special

from recalib.fitting.fit import fit
from recalib.maps.ensemble_temperature import EnsembleTemperature
from recalib.metrics.evaluate import evaluate
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw
from tests.maps.conftest import some_logits
from tests.maps.test_contract import calibrator_of


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as data:
        return data["logits"], data["labels"]


PARAMETERS = {"temperature": np.array(2.5), "weights": np.array([0.5, 0.3, 0.2])}


def probabilities(mixture: str, logits: np.ndarray, **changed: np.ndarray) -> np.ndarray:
    the_map = EnsembleTemperature(mixture=mixture)
    return the_map.probabilities(NumpyOps(), logits, {**PARAMETERS, **changed})


@pytest.mark.parametrize("masked", [False, True])
def test_both_mixtures_match_their_formulas(masked: bool) -> None:
    """Row by row and class by class; masked classes have probability 0."""
    logits = some_logits(20, 7)
    if masked:
        logits[np.arange(20), np.arange(20) % 7] = -np.inf
    for row, z in enumerate(logits):
        count = int(np.isfinite(z).sum())
        mixed = np.zeros(7)
        for k in range(7):
            if np.isfinite(z[k]):
                softened = 1 / sum(np.exp((other - z[k]) / 2.5) for other in z)
                untouched = 1 / sum(np.exp(other - z[k]) for other in z)
                mixed[k] = 0.5 * softened + 0.3 * untouched + 0.2 / count
        np.testing.assert_allclose(probabilities("probabilities", logits)[row], mixed, rtol=1e-12)
        slope = scipy.special.softmax(0.5 * z / 2.5 + 0.3 * z + 0.2 / 7)
        np.testing.assert_allclose(probabilities("logits", logits)[row], slope, rtol=1e-12)


def test_mixed_logits_equal_one_temperature() -> None:
    logits = some_logits(20, 7)
    expected = scipy.special.softmax(logits * (0.5 / 2.5 + 0.3), axis=1)
    np.testing.assert_allclose(probabilities("logits", logits), expected, rtol=1e-12)


def test_mixed_logits_keep_finite_log_probabilities() -> None:
    """Where the probability itself underflows."""
    logits = np.array([[0.0, -4000.0]])
    logs = EnsembleTemperature(mixture="logits").log_probabilities(NumpyOps(), logits, PARAMETERS)
    np.testing.assert_allclose(logs, [[0, -2000]])


def test_zero_weight_parts_are_not_in_the_graph() -> None:
    """A collapsed ensemble costs what temperature scaling costs."""
    calibrator = calibrator_of(EnsembleTemperature(), 10)
    calibrator.parameters["weights"] = np.array([1.0, 0.0, 0.0])
    graph = onnx.load_from_string(calibrator.to_onnx()).graph
    assert [node.op_type for node in graph.node] == ["Div", "Softmax"]
    assert len(graph.initializer) == 1


@pytest.mark.parametrize("objective", ["nll", "brier", "sb_ece", "hb_ece", "classwise_scaled_nll"])
@pytest.mark.parametrize("mixture", ["probabilities", "logits"])
def test_objective_is_at_most_that_of_temperature_scaling(mixture: str, objective: str) -> None:
    """By the same objective. Class-wise scaling adapts its scales, so it is only close."""
    logits, labels = draw(250, 5, 1.7)
    single = fit(logits, labels, "temperature", objective)
    ensemble = fit(logits, labels, "ensemble_temperature", objective, mixture=mixture)
    slack = 1e-3 if objective == "classwise_scaled_nll" else 1e-9
    assert ensemble.card.fit.objective <= single.card.fit.objective + slack


@pytest.mark.parametrize("mixture", ["probabilities", "logits"])
def test_published_logits_give_published_results(mixture: str, real_data: Path) -> None:
    """The weights collapse to (1, 0, 0), by both scores; the temperature is the objective's.

    Published: test ECE 1.14% by NLL (paper 003, Table 1). By the Brier score it is 0.58%.
    """
    logits, labels = read(real_data / "resnet110-cifar10-val.npz")
    test_logits, test_labels = read(real_data / "resnet110-cifar10-test.npz")
    for objective, temperature, ece in (("nll", 2.395, 0.01132), ("brier", 2.524, 0.0058)):
        calibrator = fit(logits, labels, "ensemble_temperature", objective, mixture=mixture)
        assert calibrator.parameters["temperature"] == pytest.approx(temperature, abs=1e-3)
        np.testing.assert_allclose(calibrator.parameters["weights"], [1, 0, 0], atol=1e-6)
        measured = evaluate(
            test_labels, probabilities=calibrator.predict_float64(test_logits), metrics=["ece"]
        )
        assert measured["ece"].value == pytest.approx(ece, abs=5e-5)
