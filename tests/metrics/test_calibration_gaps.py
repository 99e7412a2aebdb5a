"""Intervals and floors of binned errors, against closed forms, enumeration and other draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from recalib.metrics.calibration_gaps import Gaps, largest_gap, mean_gap, root_mean_squared_gap
from recalib.metrics.evaluate import evaluate
from recalib.metrics.intervals import (
    interval_of_largest_gap,
    interval_of_mean_gap,
    interval_of_mean_squared_gap,
)
from recalib.metrics.noise_floor import noise_floor
from recalib.stats.sums import moments
from tests.metrics.rows import gaps_of_tied_rows

LEVELS = st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.999])


def gaps_of(seed: int, bins: int, most: int = 50, classes: int = 1) -> Gaps:
    """Bins of 0 to `most` rows, some of them all right and some far off."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most + 1, bins)
    counts[0] += 1
    counts *= classes  # each row is in a bin of each class
    confidence, accuracy = rng.random((2, bins))
    correct = rng.binomial(counts, np.where(rng.random(bins) < 0.3, 1.0, accuracy))
    return gaps_of_tied_rows(counts, counts * confidence, correct, classes)


@given(st.integers(0, 10**6), st.integers(1, 40), LEVELS, st.sampled_from([1, 2, 10]))
def test_intervals_contain_the_value_and_floors_are_valid(
    seed: int, bins: int, level: float, classes: int
) -> None:
    gaps = gaps_of(seed, bins, classes=classes)
    for measure in (mean_gap, root_mean_squared_gap, largest_gap):
        result = measure(gaps, level)
        assert 0 <= result.low <= result.value <= result.high <= 1 + 1e-12
        assert 0 <= result.floor <= 1
        assert 0 <= result.floor_high <= 1
        assert measure(gaps).value == result.value
        assert measure(gaps).floor is None


def test_one_bin_interval_inverts_the_folded_normal() -> None:
    """Its ends, solved for here: P(|x + z| ≤ t) is 2.5% of that at x = 0, and t less 2.24 errors.

    To 0.05 standard errors: a little smoothing makes 2,000 values of z a function to solve.
    """
    normal = scipy.stats.norm
    for t in (0.3, 1.0, 2.0, 2.5, 6.0):
        low, high = interval_of_mean_gap(
            np.ones(1), np.array([t / 100]), np.array([1e-4]), 0.95, rows=10**9
        )

        def at_most(x: float, t: float = t) -> float:
            return normal.cdf(t - x) - normal.cdf(-t - x)

        top = scipy.optimize.brentq(lambda x: at_most(x) - 0.025 * at_most(0), 0, 20)
        assert high * 100 == pytest.approx(top, abs=0.05), t
        if t <= 2.2:
            assert low == 0
    assert low * 100 == pytest.approx(6 - 1.96, abs=0.05)


def test_large_gaps_give_the_normal_interval() -> None:
    """Twenty gaps of thirty standard errors: Σ w|ĝ| is normal, of variance Σ w²v."""
    weights, gaps = np.full(20, 0.05), np.where(np.arange(20) % 2, 0.3, -0.3)
    variances = np.full(20, 1e-4)
    low, high = interval_of_mean_gap(weights, gaps, variances, 0.95, rows=10**9)
    half = 1.96 * math.sqrt(np.sum(weights**2 * variances))
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.03 * half)
    low, high = interval_of_mean_squared_gap(weights, gaps, variances, 0.95, rows=10**9)
    half = 1.96 * 2 * 0.3 * math.sqrt(np.sum(weights**2 * variances))
    assert (low, high) == pytest.approx((0.09 - half, 0.09 + half), abs=0.05 * half)


def test_duplicated_bins_keep_the_interval() -> None:
    """The columns of two classes mirror each other, with half of the weight each."""
    rng = np.random.default_rng(0)
    weights, gaps = rng.dirichlet(np.ones(8)), rng.normal(size=8) / 20
    variances = rng.uniform(1, 9, 8) * 1e-4
    once = interval_of_mean_gap(weights, gaps, variances, 0.95, rows=500)
    twice = interval_of_mean_gap(
        np.repeat(weights / 2, 2),
        np.repeat(gaps, 2),
        np.repeat(variances, 2),
        0.95,
        rows=500,
        copies=2,
    )
    # The lower end differs by κ, which grows with the number of bins.
    assert twice[1] == pytest.approx(once[1], rel=1e-3)
    assert once[0] - 0.01 < twice[0] <= once[0] + 1e-4


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_largest_gap_interval_equals_clopper_pearson(seed: int, bins: int) -> None:
    gaps = gaps_of(seed, bins)
    result = interval_of_largest_gap(gaps.confidences, gaps.accuracies, gaps.counts, 0.9)
    together = 1 - 0.95 ** (1 / len(gaps.counts))
    lowest, highest = 0.0, 0.0
    for n, p, y in zip(gaps.counts, gaps.confidences, gaps.accuracies, strict=True):
        test = scipy.stats.binomtest(round(y * n), int(n))
        interval = test.proportion_ci(0.9, "exact")
        highest = max(highest, abs(interval.low - p), abs(interval.high - p))
        interval = test.proportion_ci(1 - together, "exact")
        lowest = max(lowest, interval.low - p, p - interval.high)
    assert result == pytest.approx((lowest, highest), rel=1e-7, abs=1e-9)


def mean_of(weights):
    return lambda gaps: np.abs(gaps) @ weights


@pytest.mark.parametrize("count", [1, 2, 10, 1000, 10**6])
@pytest.mark.parametrize("p", [1e-4, 0.3, 0.97])
def test_one_bin_floor_equals_binomial_mean_deviation(count: int, p: float) -> None:
    """E|Y − np| of a binomial, as its distribution has it; to 4 standard errors of 2,000 draws."""
    n = np.array([count])
    variance = p * (1 - p) / count
    mean, high = noise_floor(mean_of(np.ones(1)), n, np.array([p]), np.array([variance]))
    y = scipy.stats.binom(count, p)
    if count <= 1000:
        k = np.arange(count + 1)
        exact = float(np.abs(k / count - p) @ y.pmf(k))
    else:
        exact = math.sqrt(2 * variance / math.pi)
    error = math.sqrt((variance - exact**2) / 2000)
    assert mean == pytest.approx(exact, abs=4 * error + 1e-3 * exact)
    # What more than 95% of labels show; for few rows of p near 1 that is no error at all.
    assert high == pytest.approx(
        np.quantile(np.abs(y.ppf(np.linspace(0, 1, 2**15 + 1)[1:-1]) / count - p), 0.95), rel=0.1
    )


def test_floor_equals_enumeration_of_all_labels() -> None:
    """Eight rows in three bins: all 2⁸ labels, weighted by their probability."""
    p = np.array([0.55, 0.6, 0.62, 0.8, 0.82, 0.85, 0.97, 0.99])
    where = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    n = np.bincount(where)
    exact = 0.0
    for labels in itertools.product([0, 1], repeat=8):
        y = np.array(labels)
        error = np.abs(np.bincount(where, y - p)).sum() / 8
        exact += error * float(np.prod(np.where(y == 1, p, 1 - p)))
    variances = np.bincount(where, p * (1 - p)) / n**2
    mean, _ = noise_floor(mean_of(n / 8), n, np.bincount(where, p) / n, variances)
    assert mean == pytest.approx(exact, rel=0.03)


def test_floor_matches_calibrated_rows() -> None:
    """Mean and 95th percentile of 2,000 other data sets of the same confidences."""
    rng = np.random.default_rng(5)
    p = rng.beta(30, 0.6, 300)
    where = np.minimum((p * 15).astype(int), 14)
    drawn = rng.random((2000, 300)) < p
    errors = [np.abs(np.bincount(where, y - p, 15)).sum() / 300 for y in drawn]
    sums = moments(where, p, drawn[0], None, 15)
    gaps = Gaps.from_moments(sums, sums)
    result = mean_gap(gaps, 0.95)
    assert result.floor == pytest.approx(np.mean(errors), rel=0.05)
    assert result.floor_high == pytest.approx(np.quantile(errors, 0.95), rel=0.08)


def test_certain_rows_have_zero_floor() -> None:
    gaps = gaps_of_tied_rows([10, 5], [10, 0], [9, 0])
    result = mean_gap(gaps, 0.95)
    assert (result.floor, result.floor_high) == (0, 0)
    assert result.high > result.value == pytest.approx(1 / 15)


def test_label_binned_floor_matches_calibrated_rows() -> None:
    """Of 1,000 other data sets of the same confidences, each by the metric itself."""
    rng = np.random.default_rng(2)
    p = rng.beta(8, 1, 200) / 2 + 0.5
    rows = np.stack([p, 1 - p], axis=1)
    errors = [
        evaluate(y, probabilities=rows, metrics=["ece_label_binned"])["ece_label_binned"].value
        for y in (rng.random((1000, 200)) > p).astype(int)
    ]
    result = evaluate(
        np.zeros(200, int), probabilities=rows, metrics=["ece_label_binned"], level=0.9
    )
    estimate = result["ece_label_binned"]
    assert estimate.floor == pytest.approx(np.mean(errors), rel=0.05)
    assert estimate.floor_high == pytest.approx(np.quantile(errors, 0.95), rel=0.08)
    assert estimate.low < estimate.value < estimate.high


def test_one_bin_squared_gap_follows_noncentral_chi_squared() -> None:
    """Its ends, by scipy's distribution: exact however near 0 the gap is."""
    for x in (0.5, 1.5, 3.0, 8.0):
        low, high = interval_of_mean_squared_gap(
            np.ones(1), np.array([x / 100]), np.array([1e-4]), 0.95, rows=10**9
        )
        t = x**2
        top = scipy.optimize.brentq(
            lambda g, t=t: scipy.stats.ncx2.cdf(t, 1, g) - 0.025 * scipy.stats.chi2.cdf(t, 1),
            1e-9,
            200,
        )
        # Or z standard errors, if that is less.
        assert high * 1e4 == pytest.approx(min(top, (x + 1.959964) ** 2), rel=1e-5), x
        if x > 2.3:
            bottom = scipy.optimize.brentq(
                lambda g, t=t: scipy.stats.ncx2.sf(t, 1, g) - 0.025, 1e-9, 200
            )
            assert low * 1e4 == pytest.approx(bottom, rel=1e-5), x
        else:
            assert low == 0


def test_marginal_error_upper_end_is_below_one_for_many_classes() -> None:
    """Nearly empty bins of 100 classes: no further than z of the largest standard error."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(300, 100))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    result = evaluate(labels, logits=logits, metrics=["marginal_ece_l2"], level=0.95)
    estimate = result["marginal_ece_l2"]
    # A bin's w·v is at most 1/4 of 1/(NK), twice that since columns err together.
    assert estimate.value <= estimate.high < estimate.value + 1.96 * math.sqrt(0.5 / 30_000) + 1e-3


@pytest.mark.parametrize("name", ["ks_error", "ece_debiased", "ks_error_classwise", "ece_kde"])
def test_floors_match_calibrated_rows(name: str) -> None:
    """Of 300 other data sets of the same confidences, each by the metric itself."""
    rng = np.random.default_rng(4)
    p = rng.beta(8, 1, 100) / 2 + 0.5
    rows = np.stack([p, 1 - p], axis=1)
    errors = [
        evaluate(y, probabilities=rows, metrics=[name])[name].value
        for y in (rng.random((300, 100)) > p).astype(int)
    ]
    result = evaluate(np.zeros(100, int), probabilities=rows, metrics=[name], level=0.9)[name]
    assert result.floor == pytest.approx(np.mean(errors), rel=0.12)
    assert result.floor_high == pytest.approx(np.quantile(errors, 0.95), rel=0.15)


CASES = [(300, 0.97, 0.94), (300, 0.99, 0.97), (1000, 0.9, 0.9)]


@pytest.mark.parametrize(("rows", "p", "q"), CASES)
def test_one_bin_ece_l2_interval_coverage_by_enumeration(rows: int, p: float, q: float) -> None:
    """Sum over all numbers of correct rows, by their probability.

    With observed variances instead of those under the end, the second would be 92.7%.
    """
    rights = np.arange(rows + 1)
    likelihood = scipy.stats.binom(rows, q).pmf(rights)
    covered = 0.0
    for right in rights[likelihood > 1e-6]:
        result = root_mean_squared_gap(gaps_of_tied_rows([rows], [rows * p], [right]), 0.95)
        covered += likelihood[right] * (result.low <= abs(p - q) + 1e-12 <= result.high + 1e-12)
    assert 0.94 < covered <= 1 + 1e-9
