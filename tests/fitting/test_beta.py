"""Beta calibration: against scipy's own search, known curves, and temperature scaling."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from recalib.fitting.beta import beta_curve
from recalib.fitting.fit import fit
from recalib.fitting.log_odds import Groups, group_by_odds
from recalib.fitting.newton import fit_temperature
from tests.fitting.conftest import draw


def question(rows: int, curve: tuple[float, float, float], seed: int = 0) -> Groups:
    """Log-odds, and hits drawn from a known curve."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=rows) * 3
    a, b, c = curve
    score = a * scipy.special.log_expit(odds) - b * scipy.special.log_expit(-odds) + c
    hits = rng.random(rows) < scipy.special.expit(score)
    return group_by_odds(odds, hits, np.ones(rows))


@pytest.mark.parametrize("curve", [(1, 1, 0), (0.4, 1.5, 0.5), (2.0, 0.3, -1), (0.5, 0.5, 1)])
def test_known_curves_are_recovered(curve: tuple[float, float, float]) -> None:
    result, converged = beta_curve(question(100_000, curve))
    assert converged
    np.testing.assert_allclose(result, curve, atol=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_optimum_matches_gradient_free_search(seed: int) -> None:
    groups = question(200, (0.7, 1.4, -0.3), seed)
    p = groups.probability

    def loss(curve: np.ndarray) -> float:
        q = scipy.special.expit(curve[0] * np.log(p) - curve[1] * np.log(1 - p) + curve[2])
        likelihood = -(groups.hits * np.log(q) + (1 - groups.hits) * np.log(1 - q)).sum()
        away = (curve[0] - 1) ** 2 + (curve[1] - 1) ** 2 + curve[2] ** 2 / 4
        return float(likelihood + away / 2)

    by_scipy = scipy.optimize.minimize(
        loss, [1.0, 1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
    )
    result, _ = beta_curve(groups)
    np.testing.assert_allclose(result, by_scipy.x, atol=1e-4)


def test_decreasing_curve_ends_on_the_bound() -> None:
    """Inverted labels would need negative a and b, which are not allowed."""
    groups = question(500, (1, 1, 0))
    result, _ = beta_curve(Groups(groups.odds, groups.rows, groups.rows - groups.hits))
    np.testing.assert_allclose(result[:2], 1e-6)


def test_bounds_are_in_the_card() -> None:
    """Rows predicted as class 0 have label 1, and labels 0 are among class 2."""
    logits, labels = draw(3000, 6, 1.0)
    top = logits.argmax(axis=1)
    hidden = (top == 2) & (np.random.default_rng(0).random(3000) < 0.3)
    labels = np.where(labels == 0, 1, np.where(hidden, 0, labels))
    card = fit(logits, labels, "beta").card
    assert any("lower bound" in text for text in card.fit.bounds_reached)


def test_probabilities_match_the_formula() -> None:
    logits, labels = draw(400, 3, 2.0)
    calibrator = fit(logits, labels, "beta")
    parameters = calibrator.parameters
    p = scipy.special.softmax(logits / fit_temperature(logits, labels).temperature, axis=1)
    q = scipy.special.expit(
        parameters["low"] * np.log(p) - parameters["high"] * np.log1p(-p) + parameters["bias"]
    )
    expected = q / q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(calibrator.predict_float64(logits), expected, rtol=1e-9)


def test_beta_stays_near_a_correct_temperature() -> None:
    logits, labels = draw(20_000, 4, 2.0)
    beta, temperature = (fit(logits, labels, name) for name in ("beta", "temperature"))
    np.testing.assert_allclose(
        beta.predict_float64(logits), temperature.predict_float64(logits), atol=0.03
    )


def test_absent_classes_keep_the_identity_curve_and_are_reported() -> None:
    logits, labels = draw(300, 5, 2.0)
    calibrator = fit(logits, np.where(labels == 2, 0, labels), "beta")
    assert (calibrator.parameters["low"][2], calibrator.parameters["bias"][2]) == (1, 0)
    assert any("1 of 5 classes have no label" in text for text in calibrator.card.fit.warnings)
