"""Isotonic calibration: against scikit-learn, and invariants of thinning and smoothing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from sklearn.isotonic import IsotonicRegression

from recalib.fitting.fit import fit
from recalib.fitting.isotonic import Blocks, fit_isotonic, isotonic_blocks, merge_blocks
from recalib.fitting.log_odds import group_by_odds
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem
from recalib.fitting.temperature_preprocessing import with_nll
from recalib.maps.isotonic import Isotonic
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw


@pytest.mark.parametrize("seed", range(5))
def test_blocks_match_scikit_learn(seed: int) -> None:
    """Smoothed block by block in a loop: wherever that alone keeps them rising, they are ours."""
    rng = np.random.default_rng(seed)
    odds = np.round(rng.normal(size=400) * 2, 2)
    hits = rng.random(400) < scipy.special.expit(odds / 2)
    weights = rng.uniform(0, 2, 400)
    theirs = IsotonicRegression().fit(odds, hits, weights).predict(odds)
    ours = isotonic_blocks(group_by_odds(odds, hits, weights))
    expected = []
    for value in np.unique(theirs.round(12)):
        same = np.isclose(theirs, value, rtol=0, atol=1e-11)
        rows = weights[same].sum()
        mean = weights[same] @ scipy.special.expit(odds[same]) / rows
        share = (weights[same] @ hits[same] + min(mean, 0.5)) / (rows + 1)
        expected.append((weights[same] @ odds[same] / rows, share, rows))
    at, share, rows = np.array(expected).T
    again = IsotonicRegression().fit(at, share, rows + 1).predict(at)
    np.testing.assert_allclose(ours.odds, at, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.rows, rows, rtol=1e-9)
    np.testing.assert_allclose(ours.share, again, rtol=1e-9)


def test_curve_interpolates_its_blocks() -> None:
    """Confidences of the fitted map, by interpolation with NumPy in log-odds."""
    logits, labels = draw(3000, 4, 2.0)
    calibrator = fit(logits, labels, "isotonic")
    z = logits / fit_temperature(logits, labels).temperature
    p = scipy.special.softmax(z, axis=1)
    s = scipy.special.logit(p.max(axis=1))
    parameters = calibrator.parameters
    expected = scipy.special.expit(np.interp(s, parameters["knots"], parameters["values"]))
    ratio = np.sort(p, axis=1)[:, -2] / (1 - p.max(axis=1))
    result = calibrator.predict_float64(logits).max(axis=1)
    expected = np.maximum(expected, ratio / (1 + ratio))
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_confidence_is_monotonic() -> None:
    logits, labels = draw(500, 2, 1.5)
    calibrator = fit(logits, labels, "isotonic")
    gaps = np.linspace(0.01, 30, 3000)
    result = calibrator.predict_float64(np.stack([gaps, 0 * gaps], axis=1))[:, 0]
    assert (np.diff(result) >= -1e-12).all()
    assert 0.5 < result[0] < result[-1] < 1


@pytest.mark.parametrize("most", [2, 5, 64])
def test_thinning_keeps_means_and_order(most: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(1, 9, 200)
    blocks = Blocks(np.sort(rng.normal(size=200)), np.sort(rng.uniform(0.01, 0.99, 200)), rows)
    thin = merge_blocks(blocks, most)
    assert len(thin.odds) <= most
    for name in ("odds", "share"):
        before, after = getattr(blocks, name), getattr(thin, name)
        assert thin.rows @ after == pytest.approx(rows @ before)
        assert (np.diff(after) >= 0).all()
    assert (np.diff(thin.odds) >= 1e-3).all()
    assert (np.diff(scipy.special.logit(thin.share)) <= 10 * np.diff(thin.odds) + 1e-9).all()


def test_one_vs_rest_beats_temperature_where_classes_differ() -> None:
    """Each class has its own temperature, which a curve of each class can fit."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3)) * 3
    noisy = logits / np.array([1.0, 2.0, 4.0]) + rng.gumbel(size=logits.shape)
    labels = noisy.argmax(axis=1)
    fitted, held_out = slice(0, 10_000), slice(10_000, None)

    def nll(name: str, **options: str) -> float:
        p = fit(logits[fitted], labels[fitted], name, **options).predict_float64(logits[held_out])
        return float(-np.log(p[np.arange(10_000), labels[held_out]]).mean())

    assert nll("isotonic", target="one_vs_rest") < nll("temperature") - 0.01


def test_onnxruntime_float32_matches_a_fitted_curve() -> None:
    """onnxruntime agrees with NumPy within the contract's bound on real fits."""
    logits, labels = draw(3000, 10, 2.0)
    small = logits.astype(np.float32)
    for options in ({}, {"target": "one_vs_rest"}):
        calibrator = fit(small, labels, "isotonic", **options)
        expected = calibrator.predict_float64(small)
        logs = np.log(expected)
        span = np.ptp(logs, axis=1, keepdims=True)
        wrong = np.abs(calibrator.predict(small) - expected)
        assert (wrong <= 1e-6 * (1 + span) * expected + 1e-6).all()


def test_result_of_one_vs_rest_is_that_of_the_map() -> None:
    """The fit adds up objective and confidences by class; masks, weights and an absent class."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 500)  # class 3 has no label
    logits = 2 * np.eye(4)[labels] + 2 * rng.normal(size=(500, 4))
    logits[::7, 3] = -np.inf
    logits[::50] *= 100  # log-odds beyond the clip
    weights = rng.integers(1, 4, 500).astype(float)
    curves = Isotonic(target="one_vs_rest")
    problem = Problem(curves, NegativeLogLikelihood(), logits, labels, weights)
    solution = fit_isotonic(problem)
    assert solution.objective == pytest.approx(with_nll(problem, solution).objective, rel=1e-12)
    probabilities = problem.map.probabilities(NumpyOps(), logits, solution.parameters)
    np.testing.assert_allclose(solution.confidences, probabilities.max(axis=1), rtol=1e-12)


def centred_regression(
    x: np.ndarray, hits: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a centred isotonic regression and its number of blocks, by pooling in a loop."""
    blocks: list[list[float]] = []
    for value in np.unique(x):
        of_value = hits[x == value]
        blocks.append([value * len(of_value), of_value.sum(), len(of_value)])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][2] >= blocks[-1][1] * blocks[-2][2]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    sums, counts, rows = np.array(blocks).T
    return np.interp(new, sums / rows, counts / rows), np.diff(counts / rows)


@pytest.mark.parametrize("seed", range(4))
def test_centred_curve_is_the_centred_isotonic_regression(seed: int) -> None:
    """Of rounded scores, as of doses; it rises strictly between the outer blocks."""
    rng = np.random.default_rng(seed)
    odds = np.round(rng.normal(size=600) * 2, 1 if seed % 2 else 0)
    labels = (rng.random(600) < scipy.special.expit(odds / 2)).astype(int)
    new = rng.normal(size=200) * 2
    calibrator = fit(odds, labels, "isotonic", centred=True)
    expected, rises = centred_regression(odds, labels, new)
    assert (rises > 0).all()
    np.testing.assert_allclose(calibrator.predict(new)[:, 1], expected, rtol=0, atol=1e-12)


def test_centred_curves_of_classes_are_those_of_the_map() -> None:
    """Objective and confidences of the fit; and a class without labels keeps its probability."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 500)
    logits = 2 * np.eye(4)[labels] + 2 * rng.normal(size=(500, 4))
    curves = Isotonic(target="one_vs_rest", centred=True)
    problem = Problem(curves, NegativeLogLikelihood(), logits, labels)
    solution = fit_isotonic(problem)
    assert solution.objective == pytest.approx(with_nll(problem, solution).objective, rel=1e-12)
    probabilities = problem.map.probabilities(NumpyOps(), logits, solution.parameters)
    np.testing.assert_allclose(solution.confidences, probabilities.max(axis=1), rtol=1e-12)
