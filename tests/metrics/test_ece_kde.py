"""Kernel ECE: definition by scipy's densities, bandwidth, and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.metrics import METRICS, Predictions, kernels
from recalib.metrics.kernels import BANDWIDTHS, best_bandwidth, kernel_means
from tests.metrics.rows import measure
from tests.metrics.strategies import Case, coarse, distinct

KDE = ["ece_kde", "ece_kde_classwise", "ece_kde_canonical"]
LARGEST = {"ece_kde_canonical": 2.0}
Values = NDArray[np.float64]


def value(name: str, p: Values, y: NDArray[np.int64]) -> float:
    return METRICS[name](15).measure(Predictions.from_probabilities(p, y)).value


def log_kernels(p: Values, bandwidth: float) -> Values:
    """[i, j], scipy's density at row j of the Dirichlet distribution of row i; −∞ at i = j."""
    actual = [
        [scipy.stats.dirichlet(value / bandwidth + 1).logpdf(other / other.sum()) for other in p]
        for value in p
    ]
    logs = np.array(actual)
    np.fill_diagonal(logs, -np.inf)
    return logs


def drawn(seed: int, rows: int, classes: int) -> tuple[Values, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), rows) * 0.98 + 0.02 / classes
    return p, rng.integers(0, classes, rows)


seeds = st.integers(0, 2**32 - 1)
several = st.integers(2, 12)


@settings(max_examples=12)
@given(seeds, several, st.integers(2, 4), st.sampled_from(BANDWIDTHS[3:]))
def test_weighted_means_match_scipy_densities(
    seed: int, rows: int, classes: int, bandwidth: float
) -> None:
    """Logarithms up to some 1e4 leave 1e-12 of them, and so 1e-8 of their powers."""
    p, y = drawn(seed, rows, classes)
    outcomes = np.eye(classes)[y]
    logs = log_kernels(p, bandwidth)
    weights = np.exp(logs - logs.max(axis=0))
    expected = weights.T @ outcomes / weights.sum(axis=0)[:, None]
    np.testing.assert_allclose(kernel_means(p, outcomes, bandwidth), expected, atol=1e-8)


@settings(max_examples=6)
@given(seeds, st.integers(3, 12), st.integers(2, 4))
def test_bandwidth_maximises_leave_one_out_likelihood(seed: int, rows: int, classes: int) -> None:
    p, _ = drawn(seed, rows, classes)
    likelihoods = [
        scipy.special.logsumexp(log_kernels(p, bandwidth), axis=0).sum() for bandwidth in BANDWIDTHS
    ]
    chosen = BANDWIDTHS.index(best_bandwidth(p))
    assert likelihoods[chosen] == pytest.approx(max(likelihoods), rel=1e-9)


@settings(max_examples=12)
@given(seeds, several, st.integers(2, 4))
def test_three_forms_match_their_definitions(seed: int, rows: int, classes: int) -> None:
    p, y = drawn(seed, rows, classes)

    def gaps(p: Values, outcomes: Values) -> Values:
        logs = log_kernels(p, best_bandwidth(p))
        weights = np.exp(logs - logs.max(axis=0))
        return np.abs(weights.T @ outcomes / weights.sum(axis=0)[:, None] - p)

    def binary(column: Values, occurred: NDArray[np.bool_]) -> float:
        pairs = np.stack([column, 1 - column], axis=1)
        return float(gaps(pairs, np.stack([occurred, ~occurred], axis=1))[:, 0].mean())

    canonical = gaps(p, np.eye(classes)[y]).sum(axis=1).mean()
    assert value("ece_kde_canonical", p, y) == pytest.approx(canonical, abs=1e-7)
    classwise = np.mean([binary(p[:, k], y == k) for k in range(classes)])
    assert value("ece_kde_classwise", p, y) == pytest.approx(classwise, abs=1e-7)
    top = binary(p.max(axis=1), p.argmax(axis=1) == y)
    assert value("ece_kde", p, y) == pytest.approx(top, abs=1e-7)


@given(distinct())
def test_all_forms_agree_for_two_classes(case: Case) -> None:
    p, y = case
    p = np.stack([p[:, 0], 1 - p[:, 0]], axis=1)
    y = np.minimum(y, 1)
    classwise = value("ece_kde_classwise", p, y)
    assert value("ece_kde_canonical", p, y) == pytest.approx(2 * classwise, abs=1e-6)


@pytest.mark.parametrize("name", KDE)
@given(case=coarse(), order=st.randoms(use_true_random=False))
def test_values_are_in_range_and_independent_of_order(name: str, case: Case, order) -> None:
    """On rows with many ties, zeros and ones, for all bandwidths."""
    p, y = case
    rows = list(range(len(y)))
    order.shuffle(rows)
    result = value(name, p, y)
    assert 0 <= result <= LARGEST.get(name, 1.0) + 1e-12
    assert value(name, p[rows], y[rows]) == pytest.approx(result, abs=1e-6)


@pytest.mark.parametrize("name", KDE)
def test_chunk_size_does_not_change_the_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = drawn(0, 300, 4)
    expected = value(name, p, y)
    monkeypatch.setattr(kernels, "_CHUNK", 1)
    assert value(name, p, y) == pytest.approx(expected, rel=1e-9)


def test_bandwidth_sample_is_independent_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_TERMS", 20)
    p, _ = drawn(0, 500, 4)
    shuffled = np.random.default_rng(1).permutation(500)
    expected = np.sort(p[kernels.spread_rows(p, 20)], axis=None)
    other = p[shuffled][:, [2, 0, 3, 1]]
    assert len(kernels.spread_rows(p, 20)) == 20
    np.testing.assert_array_equal(
        np.sort(other[kernels.spread_rows(other, 20)], axis=None), expected
    )


@pytest.mark.parametrize(
    ("slope", "error"), [pytest.param(1.0, 0.0, marks=pytest.mark.slow), (0.85, 0.1125)]
)
def test_large_sample_estimate_is_close_to_the_true_error(slope: float, error: float) -> None:
    """3,000 confidences, even from 0.5 to 1: to some 0.02, the noise of some 50 neighbours."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 3000)
    result = measure("ece_kde", p, rng.random(3000) < slope * p).value
    assert error - 0.01 < result < error + 0.04


def test_one_confidence_uses_leave_one_out_gaps() -> None:
    """Leave-one-out accuracy is 2/3 for the correct rows and 3/3 for the wrong row."""
    result = measure("ece_kde", [0.8] * 4, [True, True, True, False]).value
    assert result == pytest.approx((3 * (0.8 - 2 / 3) + 0.2) / 4, abs=1e-9)


@pytest.mark.parametrize("name", KDE)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_saturated_rows_have_finite_error(name: str, dtype: type) -> None:
    """Certain rows and one isolated uncertain row: finite, and near 0 if correct."""
    logits = np.zeros((20, 3), dtype)
    logits[:19, 1] = 1000
    result = METRICS[name](15).measure(Predictions.from_logits(logits, np.ones(20, np.int64))).value
    assert math.isfinite(result)
    assert result < 0.1


@pytest.mark.parametrize(
    ("slope", "skewed"), [(1.0, True), pytest.param(0.8, False, marks=pytest.mark.slow)]
)
def test_interval_covers_the_smoothed_true_error(slope: float, skewed: bool) -> None:
    """In 93% of 40 draws of 150 rows; the truth is that of 800 even ranks, with the same kernels.

    Narrower than the plain bound would be, the value and all of its noise below it.
    """
    rng = np.random.default_rng(0)
    law = scipy.stats.beta(30, 0.6) if skewed else scipy.stats.uniform(0.5, 0.5)
    ranks = law.ppf((np.arange(800) + 0.5) / 800)
    many = np.stack([ranks, 1 - ranks], axis=1)
    truths: dict[float, float] = {}
    covered = 0
    for _ in range(40):
        p = law.rvs(150, random_state=rng)
        result = measure("ece_kde", p, rng.random(150) < slope * p, 0.95)
        bandwidth = best_bandwidth(np.stack([p, 1 - p], axis=1))
        if bandwidth not in truths:
            means = kernel_means(many, (slope * ranks)[:, None], bandwidth)
            truths[bandwidth] = float(np.mean(np.abs(means[:, 0] - ranks)))
        covered += result.low <= truths[bandwidth] <= result.high
    assert covered >= 38


@pytest.mark.parametrize("name", KDE)
def test_intervals_contain_the_value(name: str) -> None:
    """For 300 rows with unrelated labels, and for a single row."""
    p, y = drawn(0, 300, 4)
    wrong = METRICS[name](15).measure(Predictions.from_probabilities(p, y), 0.95)
    assert wrong.low > 0
    assert wrong.value > wrong.floor_high > wrong.floor > 0
    single = METRICS[name](15).measure(Predictions.from_probabilities(p[:1], y[:1]), 0.95)
    assert (single.low, single.high) == (0, LARGEST.get(name, 1.0))
