"""Intra order-preserving scaling: formula, order, limits, and known true temperatures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recalib.fitting.fit import fit
from recalib.maps.intra_order_preserving import IntraOrderPreserving
from recalib.metrics.evaluate import evaluate
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw
from tests.maps.conftest import some_logits, some_parameters
from tests.maps.test_contract import calibrator_of

MAP = IntraOrderPreserving()


def transform(logits: np.ndarray, parameters: dict[str, np.ndarray]) -> np.ndarray:
    return MAP.transform(NumpyOps(), logits, parameters)


def by_loop(z: np.ndarray, parameters: dict[str, np.ndarray]) -> list[float]:
    """f(z) of one row by the docstring's formulas: every gap in turn, no masks."""
    ranks, t = len(parameters["output_bias"]), float(parameters["temperature"])
    order = sorted(range(len(z)), key=lambda k: -z[k])
    y = [float(z[k]) for k in order]
    depths = [1 - min(y[0] - y[i + 1], 20 * t) / (20 * t) for i in range(ranks)]
    units = [
        math.tanh(
            sum(x * parameters["input"][i, j] for i, x in enumerate(depths))
            + parameters["input_bias"][j]
        )
        for j in range(len(parameters["input_bias"]))
    ]
    s = [
        math.exp(
            2
            * math.tanh(
                sum(u * parameters["output"][j, r] for j, u in enumerate(units))
                + parameters["output_bias"][r]
            )
        )
        / t
        for r in range(ranks)
    ]
    floor = y[0] - 20 * t
    f = [0.0] * len(y)
    for i in range(len(y) - 2, -1, -1):
        multiplier = s[min(i, ranks - 1)]
        # The part of the gap below the floor uses the slope of the last rank.
        above = max(y[i], floor) - max(y[i + 1], floor)
        f[i] = f[i + 1] + multiplier * above + s[-1] * (y[i] - y[i + 1] - above)
    result = [0.0] * len(y)
    for place, k in enumerate(order):
        result[k] = f[place]
    return result


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("classes", [2, 3, 6, 7, 40])
def test_matches_the_formula(classes: int, scale: float) -> None:
    """At scale 30 most gaps are deeper than what the network reads."""
    logits = some_logits(30, classes) * scale
    parameters = some_parameters(MAP, classes)
    result = transform(logits, parameters)
    expected = np.array([by_loop(z, parameters) for z in logits])
    # Only differences within a row mean anything.
    result, expected = (f - f.max(axis=1, keepdims=True) for f in (result, expected))
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ranking_and_ties_are_preserved(dtype: type) -> None:
    """For all parameters, in NumPy and in onnxruntime's float32."""
    logits = np.round(some_logits(3000, 12) * 2).astype(dtype) / 2  # many ties
    order = np.argsort(-logits, axis=1, kind="stable")
    ranked = np.take_along_axis(logits, order, axis=1)
    for seed in range(5):
        calibrator = calibrator_of(MAP, 12, seed)
        result = np.take_along_axis(calibrator.predict(logits), order, axis=1)
        falls = np.diff(result, axis=1)
        assert (falls <= 0).all()
        assert (falls[np.diff(ranked, axis=1) == 0] == 0).all()


def test_masks_do_not_change_other_classes() -> None:
    """Also with fewer unmasked classes than ranks that the network reads."""
    logits = some_logits(20, 8)
    logits[:, 3:] = -np.inf
    parameters = some_parameters(MAP, 8)
    result = MAP.probabilities(NumpyOps(), logits, parameters)
    assert (result[:, 3:] == 0).all()
    deep = np.where(np.isneginf(logits), -1e9, logits)
    np.testing.assert_allclose(result, MAP.probabilities(NumpyOps(), deep, parameters), rtol=1e-9)


def test_start_equals_temperature_scaling_with_nonzero_gradients() -> None:
    logits, labels = draw(400, 6, 2.0)
    start = MAP.start(6, 1.7)
    expected = np.diff(logits / 1.7, axis=1)
    np.testing.assert_allclose(np.diff(transform(logits, start), axis=1), expected, atol=1e-12)
    calibrator = fit(logits, labels, "intra_order_preserving")
    moved = [np.abs(calibrator.parameters[n] - start[n]).max() for n in ("output", "output_bias")]
    assert min(moved) > 1e-4


@pytest.mark.slow
def test_margin_dependent_temperature_is_recovered() -> None:
    """The fit closes over two thirds of the NLL gap between one temperature and the truth."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(12_000, 6)) * 3
    ranked = np.sort(logits, axis=1)
    margin = ranked[:, -1:] - ranked[:, -2:-1]
    truth = logits / (1 + 3 * np.exp(-margin / 2))
    labels = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    fitted, rest = slice(0, 6000), slice(6000, None)

    def nll(values: np.ndarray) -> float:
        return evaluate(labels[rest], logits=values, metrics=["nll"])["nll"].value

    single = fit(logits[fitted], labels[fitted])
    calibrator = fit(logits[fitted], labels[fitted], "intra_order_preserving")
    worst = nll(logits[rest] / single.parameters["temperature"])
    mine = nll(transform(logits[rest], calibrator.parameters))
    assert mine < worst - 2 / 3 * (worst - nll(truth[rest]))


@pytest.mark.parametrize("objective", ["brier", "focal", "label_smoothing", "sb_ece"])
def test_every_smooth_objective_improves(objective: str) -> None:
    logits, labels = draw(300, 5, 1.7)
    single = fit(logits, labels, "temperature", objective)
    calibrator = fit(logits, labels, "intra_order_preserving", objective)
    assert calibrator.card.fit.objective <= single.card.fit.objective + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_few_rows_stay_near_temperature_scaling(seed: int) -> None:
    """Fifty rows with one true temperature: NLL is at most 2% higher."""
    logits, labels = draw(4050, 10, 2.0, seed)
    scores = {}
    for name in ("temperature", "intra_order_preserving"):
        calibrator = fit(logits[:50], labels[:50], name)
        p = calibrator.predict_float64(logits[50:])
        scores[name] = evaluate(labels[50:], probabilities=p, metrics=["nll"])
    assert (
        scores["intra_order_preserving"]["nll"].value <= scores["temperature"]["nll"].value * 1.02
    )


def test_fit_is_deterministic() -> None:
    logits, labels = draw(200, 4, 2.0)
    first, second = (fit(logits, labels, "intra_order_preserving") for _ in range(2))
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name])
