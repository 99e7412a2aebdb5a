"""Intervals: against other implementations, and by coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.metrics import METRICS
from recalib.metrics.base import Estimate
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.evaluate import evaluate
from recalib.metrics.intervals import variances_under
from recalib.metrics.mean_metrics import wilson
from recalib.stats.sums import Bins
from tests.draws import few_or_many
from tests.metrics.rows import gaps_of_tied_rows

ROWS = 400


@given(st.integers(1, 10**6), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_wilson_equals_scipy(count: int, share: float, level: float) -> None:
    """The interval always contains the share: one ulp would exclude 1."""
    successes = round(share * count)
    low, high = wilson(successes, count, level)
    expected = scipy.stats.binomtest(successes, count).proportion_ci(level, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert 0 <= low <= successes / count <= high <= 1


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_equals_published_values(
    successes: int, count: int, low: float, high: float
) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson(successes, count, 0.95) == pytest.approx((low, high), abs=5e-5)


def test_wilson_contains_shares_of_zero_and_one() -> None:
    """All n up to 20,000: clipped at 1, the end of n of n would be an ulp too low for many."""
    n = np.arange(1, 20_001)
    for level in (0.5, 0.9, 0.95, 0.99):
        assert np.all(wilson(n.astype(float), n, level)[1] == 1)
        assert np.all(wilson(np.zeros(len(n)), n, level)[0] == 0)


@pytest.mark.parametrize("name", ["nll", "brier"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_mean_intervals_equal_student_t(name: str, level: float) -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    scores = {
        "nll": -np.log(p[np.arange(200), y]),
        "brier": ((p - np.eye(4)[y]) ** 2).sum(axis=1),
    }[name]
    expected = scipy.stats.t.interval(level, 199, scores.mean(), scipy.stats.sem(scores))
    result = evaluate(y, probabilities=p, metrics=[name], level=level)[name]
    assert (result.low, result.high) == pytest.approx(expected, rel=1e-9)


def test_variances_match_their_docstring() -> None:
    """A loop over rows: the largest of sample, smoothed and calibrated variance."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1, 300)
    y = rng.random(300) < p
    state = Bins(10)
    state.add(p, y)
    expected = []
    for k in range(10):
        inside = (p > k / 10) & (p <= (k + 1) / 10)
        n = inside.sum()
        if n == 0:
            continue
        q = (y[inside].sum() + 2) / (n + 4)
        sample = np.var(y[inside] - p[inside], ddof=1) / n
        calibrated = np.sum(p[inside] * (1 - p[inside])) / n**2
        expected.append(max(sample, q * (1 - q) / n, calibrated))
    result = Gaps.of(state)
    assert result.variances == pytest.approx(expected, rel=1e-9)
    assert np.all(result.calibrated_variances <= result.variances)


def test_variances_of_equal_confidences() -> None:
    """Of ten rows with confidence 0.9, four are correct: the sample variance is the largest."""
    gaps = gaps_of_tied_rows([10], [9], [4])
    assert gaps.variances == pytest.approx([0.4 * 0.6 / 9], rel=1e-12)
    assert gaps.calibrated_variances == pytest.approx([0.9 * 0.1 / 10], rel=1e-12)


Truth = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def calibrated(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p


def overconfident(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p - 0.15


def mixed(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Underconfident below, overconfident above: gaps of both signs."""
    return np.clip(p + 0.2 * np.cos(5 * p), 0, 1)


def steep(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy near 1: a naive variance fails in bins without errors."""
    return np.minimum(p + 0.02, 0.999)


def true_error(truth: Truth, lowest: float, bins: int) -> float:
    """The ECE of 100,000 rows from `lowest` up with probabilities for outcomes."""
    population = np.linspace(lowest, 1, 10**5, endpoint=False) + (1 - lowest) / 2e5
    where = (population * bins).astype(int)
    gaps = np.bincount(where, truth(population) - population, bins)
    return float(np.abs(gaps).sum() / len(population))


def coverage(truth: Truth, lowest: float, draws: int) -> float:
    """Coverage of the 95% interval of 400 rows with confidences of at least `lowest`."""
    bins = 15
    true_value = true_error(truth, lowest, bins)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        p = rng.uniform(lowest, 1, ROWS)
        result = measured("ece", p, rng.random(ROWS) < truth(p), bins)
        covered += result.low <= true_value <= result.high
    return covered / draws


def coverage_of_one_bin(name: str, truth: Truth, lowest: float, draws: int) -> float:
    """Coverage with all rows in one of 15 bins: exact for each draw of confidences.

    The error is then a function of the number of correct rows, of known distribution. In one
    bin every error is the same.
    """
    true_value = true_error(truth, lowest, 1)
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(draws):
        p = rng.uniform(lowest, 1, ROWS)
        likeliest_first = np.argsort(rng.random(ROWS) - truth(p))
        chances = scipy.stats.poisson_binom(truth(p)).pmf(np.arange(ROWS + 1))
        for rights in np.flatnonzero(chances > 1e-5):
            right = np.zeros(ROWS, bool)
            right[likeliest_first[:rights]] = True
            result = measured(name, p, right, 15)
            total += chances[rights] * (result.low <= true_value <= result.high)
    return total / draws


def measured(name: str, p: NDArray[np.float64], right: NDArray[np.bool_], bins: int) -> Estimate:
    state = Bins(bins)
    state.add(p, right)
    result = METRICS[name](bins).estimate(state, 0.95)
    assert result.low <= result.value <= result.high
    return result


everything = pytest.mark.parametrize("truth", [calibrated, overconfident, mixed, steep])


@pytest.mark.usefixtures("without_floors")
@everything
@pytest.mark.parametrize("lowest", [0.3, 0.8])
@few_or_many(30, 500)
def test_ece_interval_has_nominal_coverage(truth: Truth, lowest: float, draws: int) -> None:
    """In 95% of draws but for three standard errors, with rows in 11 bins or in 3.

    `test_calibration_gaps.py` has closed forms. `python -m benchmarks.coverage` draws more, of
    more kinds.
    """
    assert coverage(truth, lowest, draws) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.usefixtures("without_floors")
@everything
@few_or_many(2, 10)
def test_one_bin_ece_interval_has_nominal_coverage(truth: Truth, draws: int) -> None:
    """The worst case: 95% but for 0.2%, since whole numbers of rows meet no level exactly.

    Without Agresti and Coull's two errors and two successes, `overconfident` would fail at 94.7%.
    """
    assert coverage_of_one_bin("ece", truth, 0.95, draws) >= 0.948


def wrong_where_sure(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """More than twice the errors of calibrated rows, which increases the variance."""
    return p - 0.025


@pytest.mark.usefixtures("without_floors")
@pytest.mark.parametrize("truth", [calibrated, wrong_where_sure, steep])
@few_or_many(2, 10)
def test_one_bin_ece_l2_interval_has_nominal_coverage(truth: Truth, draws: int) -> None:
    """In 95.5% or more; `wrong_where_sure` would fail at 95.2% with observed variances.

    And without Agresti and Coull's two errors and two successes, at 94.6%.
    """
    assert coverage_of_one_bin("ece_l2", truth, 0.97, draws) >= 0.955


def test_variance_given_an_error_uses_the_implied_accuracy() -> None:
    """98 of 100 right, sure of 0.99: were the gap −0.09, errors would be ten, not two."""
    n, p, g, v = np.array([100]), np.array([0.99]), np.array([-0.01]), np.array([0.02 * 0.98 / 100])
    under = variances_under(n, p, g, v)
    expected = v[0] * (12 / 104 * 92 / 104) / (4 / 104 * 100 / 104)
    assert under(np.array([0.09])) == pytest.approx([expected], rel=1e-12)
    assert under(np.array([0.01])) == pytest.approx(v, rel=1e-12)
    assert under(np.zeros(1)) == pytest.approx(v, rel=1e-12)
    # Accuracy is within 0 to 1.
    assert under(np.array([5.0])) == pytest.approx(under(np.array([0.99])), rel=1e-12)


def test_ece_interval_detects_overconfidence() -> None:
    """Overconfidence by 0.15 is detected in 2,000 rows."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1, 2000)
    state = Bins(15)
    state.add(p, rng.random(2000) < overconfident(p))
    result = METRICS["ece"](15).estimate(state, 0.95)
    assert result.low > 0.05
    assert result.high < 0.25


def test_higher_level_gives_wider_interval() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    narrow, wide = (evaluate(y, probabilities=p, level=level) for level in (0.8, 0.99))
    for name, estimate in narrow.items():
        if estimate.low is not None:
            assert wide[name].low <= estimate.low <= estimate.high <= wide[name].high, name
            if (estimate.low, estimate.high) != (
                0,
                1,
            ):  # unknown, for example without rows over 99%
                assert wide[name].high - wide[name].low > estimate.high - estimate.low, name


@pytest.mark.parametrize(
    "name",
    ["ece", "ece_l2", "ece_l2_equal_mass", "ece_sweep", "brier_reliability", "smooth_ece"],
)
def test_interval_of_an_error_of_zero_has_a_width(name: str) -> None:
    """36 of 48 rows are right with confidence .75; true accuracies around it are as likely."""
    p = np.repeat([[0.75, 0.25]], 48, axis=0)
    labels = (np.arange(48) % 4 == 0).astype(int)
    result = evaluate(labels, probabilities=p, metrics=[name], level=0.95)[name]
    assert result.value == pytest.approx(0, abs=1e-12)
    assert result.low == pytest.approx(0, abs=1e-12)
    assert result.high is not None
    # The error of an accuracy one standard error off, which no 95% interval excludes.
    error = 0.0625
    assert result.high > (error**2 if name == "brier_reliability" else error)
