"""The spline: against scipy's evaluation and search, and its shape."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.special

from recalib.fitting.fit import fit
from recalib.fitting.log_odds import group_by_odds
from recalib.fitting.newton import fit_temperature
from recalib.fitting.spline import Curve, choose_knots, fit_curve
from tests.fitting.conftest import draw


def question(rows: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=rows) * 3
    hits = rng.random(rows) < scipy.special.expit(np.tanh(odds) * 3)
    return group_by_odds(odds, hits, np.ones(rows))


@pytest.mark.slow
def test_known_curve_is_recovered() -> None:
    groups = question(100_000)
    curve = Curve(choose_knots(groups, 13))
    result, converged = fit_curve(groups, curve, 1.0)
    assert converged
    at = np.linspace(-4, 4, 50)
    share = scipy.special.expit(curve.knots[0] + curve.inputs(at) @ result)
    np.testing.assert_allclose(share, scipy.special.expit(np.tanh(at) * 3), atol=0.02)


def test_optimum_matches_scipy_search() -> None:
    groups = question(300)
    curve = Curve(choose_knots(groups, 5))
    p, inputs = groups.hits, curve.inputs(groups.odds)

    def loss(numbers: np.ndarray) -> float:
        odds = curve.knots[0] + inputs @ numbers
        log_q, log_r = scipy.special.log_expit(odds), scipy.special.log_expit(-odds)
        away = numbers - np.array([0.0] + [1.0] * curve.size)
        away[0] /= 2
        return float(-(p * log_q + (1 - p) * log_r).sum() + away @ away / 2)

    other = scipy.optimize.minimize(
        loss,
        np.ones(curve.size + 1),
        method="SLSQP",
        bounds=[(-50, 50)] + [(0, 10)] * curve.size,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    result, _ = fit_curve(groups, curve, 1.0)
    np.testing.assert_allclose(result, other.x, atol=1e-3)


def test_map_evaluates_the_fitted_spline() -> None:
    """scipy's cubic through the knots in log-odds, constant beyond them."""
    logits, labels = draw(2000, 4, 2.0)
    calibrator = fit(logits, labels, "spline")
    parameters = calibrator.parameters
    p = scipy.special.softmax(logits / fit_temperature(logits, labels).temperature, axis=1)
    top = p.max(axis=1)
    cubic = scipy.interpolate.CubicHermiteSpline(
        parameters["knots"], parameters["values"], parameters["slopes"]
    )
    odds = np.clip(scipy.special.logit(top), parameters["knots"][0], parameters["knots"][-1])
    expected = scipy.special.expit(cubic(odds))
    ratio = np.sort(p, axis=1)[:, -2] / (1 - top)
    expected = np.maximum(expected, ratio / (1 + ratio))
    np.testing.assert_allclose(calibrator.predict_float64(logits).max(axis=1), expected, atol=1e-4)


def test_confidence_rises_and_is_smooth() -> None:
    logits, labels = draw(500, 2, 1.5)
    calibrator = fit(logits, labels, "spline")
    gaps = np.linspace(0.01, 30, 30_000)
    result = calibrator.predict_float64(np.stack([gaps, 0 * gaps], axis=1))[:, 0]
    assert (np.diff(result) >= -1e-12).all()
    assert np.diff(result).max() < 0.01
    assert 0.5 < result[0] < result[-1] < 1


def test_strong_smoothing_equals_temperature_scaling() -> None:
    logits, labels = draw(500, 4, 2.0)
    spline_fit, temperature_fit = (
        fit(logits, labels, "spline", smoothing=1e9),
        fit(logits, labels, "temperature"),
    )
    np.testing.assert_allclose(
        spline_fit.predict_float64(logits), temperature_fit.predict_float64(logits), atol=1e-4
    )


def test_saturating_accuracy_is_learned() -> None:
    """Confident rows have 90% accuracy, which no temperature fits."""
    rng = np.random.default_rng(0)
    logits, labels = draw(20_000, 5, 1.0)
    labels = np.where(rng.random(20_000) < 0.1, rng.integers(0, 5, 20_000), labels)
    fitted, held_out = slice(0, 10_000), slice(10_000, None)

    def nll(name: str) -> float:
        p = fit(logits[fitted], labels[fitted], name).predict_float64(logits[held_out])
        return float(-np.log(p[np.arange(10_000), labels[held_out]]).mean())

    assert nll("spline") < nll("temperature") - 0.005


@pytest.mark.parametrize("rows", [1, 2, 3, 10])
def test_few_rows_stay_near_temperature_scaling(rows: int) -> None:
    logits, labels = draw(rows, 4, 1.0)
    result = fit(logits, labels, "spline").predict_float64(logits)
    assert (result > 0).all()
    np.testing.assert_array_equal(result.argmax(axis=1), logits.argmax(axis=1))
