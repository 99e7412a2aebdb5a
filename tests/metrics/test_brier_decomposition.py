"""Decomposition of the top label's Brier score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss

from recalib.metrics import METRICS, Predictions
from recalib.stats.sums import Bins
from tests.metrics.rows import measure, rows
from tests.metrics.strategies import Case, bins, coarse


def parts(predictions: Predictions, bins: int) -> tuple[float, float, float, float]:
    state = Bins(bins)
    state.add(predictions.confidences, predictions.correct)
    names = ("brier_reliability", "brier_resolution", "brier_uncertainty")
    reliability, resolution, uncertainty = (
        METRICS[name](bins).estimate(state).value for name in names
    )
    return reliability, resolution, uncertainty, within_bins(state)


def within_bins(state: Bins) -> float:
    """Return the within-bin terms, 1/N Σ_b Σ_i∈b (p_i − p̄_b)² − 2(p_i − p̄_b)(y_i − ȳ_b).

    With them the terms add up to mean (p − y)² exactly; 0 if each bin holds one confidence.

    Source: Stephenson, Coelho and Jolliffe, Two extra components in the Brier score
    decomposition, Wea. Forecasting 2008.
    """
    at = state.filled
    n, p, y = state.count[at], state.confidence[at], state.correct[at]
    squares = state.confidence_squared[at] - p**2 / n
    products = state.confidence_correct[at] - p * y / n
    return float(np.sum(squares - 2 * products) / state.count.sum())


@given(coarse(), bins)
def test_parts_sum_to_the_score(case: Case, bins: int) -> None:
    predictions = Predictions.from_probabilities(*case)
    reliability, resolution, uncertainty, within = parts(predictions, bins)
    score = np.mean((predictions.confidences - predictions.correct) ** 2)
    assert reliability - resolution + uncertainty + within == pytest.approx(score, abs=1e-12)


def test_score_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.51, 1, 500)
    y = rng.random(500) < p - 0.1
    reliability, resolution, uncertainty, within = parts(rows(p, y), 15)
    expected = brier_score_loss(y, p)
    assert reliability - resolution + uncertainty + within == pytest.approx(expected, rel=1e-12)


def test_within_bin_part_is_zero_for_one_confidence_per_bin() -> None:
    p = np.repeat([0.55, 0.75, 0.95], [10, 20, 30])
    assert parts(rows(p, np.arange(60) % 3 > 0), 10)[3] == pytest.approx(0, abs=1e-15)


def test_hand_computed_example() -> None:
    """Confidence 0.6 with accuracy 0.5, and 0.9 with 1: gaps −0.1 and 0.1."""
    result = parts(rows([0.6, 0.6, 0.9, 0.9], [True, False, True, True]), 10)
    assert result == pytest.approx((0.01, 0.0625, 0.1875, 0), abs=1e-12)


def test_reliability_interval_is_squared_ece_l2_interval() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 300)
    y = rng.random(300) < p
    square, root = (measure(name, p, y, 0.9) for name in ("brier_reliability", "ece_l2"))
    assert square.low == pytest.approx(root.low**2, abs=1e-12)
    assert square.high == pytest.approx(root.high**2, rel=1e-12)
    assert square.floor_high == pytest.approx(root.floor_high**2, rel=1e-5)


def test_uncertainty_interval_follows_wilson() -> None:
    """Intervals below, above and around one half."""
    for right, ends in ((90, None), (10, None), (52, 0.25)):
        result = measure("brier_uncertainty", [0.7] * 100, np.arange(100) < right, 0.95)
        test = binomtest(right, 100).proportion_ci(0.95, "wilson")
        low, high = sorted(q * (1 - q) for q in (test.low, test.high))
        assert result.low == pytest.approx(low, rel=1e-9)
        assert result.high == pytest.approx(ends or high, rel=1e-9)


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_resolution_interval_covers_the_true_value(slope: float) -> None:
    """In at least 93% of 300 draws, for five groups of accuracy 0.5, or 0.5 to 0.9."""
    rng = np.random.default_rng(0)
    p = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], 60)
    q = 0.5 + slope * (p - 0.55)
    covered = 0
    for _ in range(300):
        result = measure("brier_resolution", p, rng.random(300) < q, 0.95)
        covered += result.low <= np.var(q) + 1e-12 and result.high >= np.var(q)
    assert covered / 300 >= 0.93


def test_one_bin_has_zero_resolution() -> None:
    result = measure("brier_resolution", [0.98, 0.99], [True, False], 0.95)
    assert (result.value, result.low, result.high) == (0, 0, 0)
