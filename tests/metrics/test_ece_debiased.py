"""The debiased error: bias, published values, and interval coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib.metrics import METRICS
from recalib.metrics.base import Estimate
from recalib.metrics.calibration_gaps import Gaps, mean_squared_gap
from recalib.metrics.evaluate import evaluate
from recalib.stats.sums import Bins
from tests.draws import few_or_many

Values = NDArray[np.float64]


def measure(
    p: Values, correct: NDArray[np.bool_], bins: int = 15, level: float | None = 0.95
) -> Estimate:
    state = Bins(bins)
    state.add(p, correct)
    return METRICS["ece_debiased"](bins).estimate(state, level)


def test_squared_error_is_unbiased() -> None:
    """100 rows, 2,000 times: three standard errors, of some 0.001, do not hide a bias of 0.02."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1, (2000, 100))
    y = rng.random(p.shape) < p - 0.3
    squares = np.array([measure(*rows, level=None).value ** 2 for rows in zip(p, y, strict=True)])
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - 0.09) < 3 * error
    assert error < 0.002
    gaps = []
    for row, right in zip(p[:500], y[:500], strict=True):
        state = Bins(15)
        state.add(row, right)
        gaps.append(mean_squared_gap(Gaps.of(state)).value)
    assert np.mean(gaps) > 0.09 + 0.01


@given(st.integers(0, 2**32 - 1), st.integers(2, 200), st.integers(1, 10))
def test_equals_published_estimator_for_one_confidence_per_bin(
    seed: int, rows: int, values: int
) -> None:
    """Kumar et al., definition 5.2: (s − ȳ)² − ȳ(1 − ȳ)/(n − 1), weighted."""
    rng = np.random.default_rng(seed)
    p = (rng.integers(10 - values, 10, rows) + 0.5) / 10
    y = rng.random(rows) < 0.5
    groups = [(value, y[p == value]) for value in np.unique(p) if (p == value).sum() > 1]
    assume(groups)
    total = sum(len(group) for _, group in groups)
    expected = 0.0
    for value, group in groups:
        n, mean = len(group), group.mean()
        expected += n / total * ((value - mean) ** 2 - mean * (1 - mean) / (n - 1))
    result = measure(p, y, 10).value
    assert result**2 == pytest.approx(max(expected, 0), abs=1e-12)


def test_equals_published_code() -> None:
    """`unbiased_l2_ce` of uncertainty-calibration 0.1.4, bins (k/10, (k+1)/10], on these rows."""
    p = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], [10, 20, 30, 40, 50])
    y = np.arange(150) % 3 > 0
    assert measure(p, y, 10).value == pytest.approx(0.17039864686388786, rel=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_interval_ends_invert_the_test(level: float) -> None:
    """By scipy's gamma distribution, in one bin, where s = v and no share varies.

    v is that of the accuracy which the end would make, 0.8 less the end, two rights and two
    wrongs added.
    """
    rng = np.random.default_rng(0)
    p = np.full(200, 0.8)
    y = rng.random(200) < 0.6
    result = measure(p, y, 1, level)
    sample = y.var(ddof=1) / 200
    q = (y.sum() + 2) / 204
    for end, tail in ((result.low, 1 - level), (result.high, 1 + level)):
        tested = (200 * (0.8 - end) + 2) / 204
        variance = sample * tested * (1 - tested) / (q * (1 - q))
        t = (y.mean() - 0.8) ** 2 - sample + variance
        mean, square = end**2 + variance, 2 * variance**2 + 4 * end**2 * variance
        law = scipy.stats.gamma(mean**2 / square, scale=square / mean)
        assert law.cdf(t) == pytest.approx(1 - tail / 2, abs=1e-9)


@pytest.mark.parametrize("sure", [0.5, 0.999, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 3, 20])
@pytest.mark.parametrize("right", ["all", "none"])
def test_one_confidence_with_all_rows_correct_or_wrong(sure: float, rows: int, right: str) -> None:
    """All residuals are equal: the error is |r|; error and interval are finite."""
    result = measure(np.full(rows, sure), np.full(rows, right == "all"))
    assert result.value == pytest.approx(1 - sure if right == "all" else sure, abs=1e-7)
    assert 0 <= result.low <= result.value <= result.high <= 1
    assert result.high > result.low or result.value == 1


def test_bin_with_one_row_is_excluded() -> None:
    p = np.array([0.95, 0.95, 0.15])
    y = np.array([False, False, True])
    assert measure(p, y, 10).value == pytest.approx(0.95)


def test_single_row_bins_are_merged() -> None:
    """r = 0.05 and 0.15: the one product is their mean product."""
    p = np.array([0.95, 0.85])
    assert measure(p, np.array([True, True]), 10).value == pytest.approx(math.sqrt(0.05 * 0.15))


def test_negative_estimate_is_clipped_and_has_an_interval() -> None:
    """0.5, right and wrong: the mean product is −1/4, an error of 0 that two rows cannot prove."""
    result = measure(np.full(2, 0.5), np.array([True, False]))
    assert result.value == result.low == 0
    assert result.high > 0.3


CONFIDENCES = {
    "even": lambda rng, n: rng.uniform(0.3, 1, n),
    "skewed": lambda rng, n: rng.beta(30, 0.6, n),
    "one bin": lambda rng, n: rng.uniform(0.94, 1, n),
}
TRUTHS = {
    "calibrated": lambda p: p,
    "slightly overconfident": lambda p: 0.98 * p,
    "overconfident": lambda p: 0.9 * p,
    "underconfident": lambda p: (1 + p) / 2,
}


@pytest.mark.usefixtures("without_floors")
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("confidence", CONFIDENCES)
@few_or_many(40, 600)
def test_interval_covers_the_true_value(confidence: str, truth: str, draws: int) -> None:
    """In 93% of draws of 300 rows, less two standard errors; `benchmarks.coverage` has more.

    A normal interval around θ̂ holds it in 78% of the skewed ones.
    """
    rng = np.random.default_rng(0)
    population = Bins(15)
    many = CONFIDENCES[confidence](rng, 10**5)
    population.add(many, np.zeros(len(many), bool))
    where = np.clip(np.ceil(many * 15) - 1, 0, 14).astype(int)
    rights = np.bincount(where, TRUTHS[truth](many), 15)[population.filled]
    shares = population.count[population.filled]
    gaps = (rights - population.confidence[population.filled]) / shares
    true_value = math.sqrt(float(shares @ gaps**2) / len(many))
    covered = 0
    for _ in range(draws):
        p = CONFIDENCES[confidence](rng, 300)
        result = measure(p, rng.random(300) < TRUTHS[truth](p))
        covered += result.low - 1e-9 <= true_value <= result.high
    assert covered / draws >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)


def test_interval_is_informative() -> None:
    """2,000 rows overconfident by 0.15: ends are within 0.05 of it."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1, 2000)
    y = rng.random(2000) < p - 0.15
    result = measure(p, y)
    assert 0.1 < result.low < 0.15 < result.high < 0.2


def test_debiased_error_is_at_most_the_plain_error() -> None:
    """On the same bins the plain ℓ2 error is larger; both are of the top label."""
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(5), 300), rng.integers(0, 5, 300)
    state = Bins(15)
    state.add(p.max(axis=1), p.argmax(axis=1) == y)
    plain = math.sqrt(mean_squared_gap(Gaps.of(state)).value)
    assert 0 < evaluate(y, probabilities=p, metrics=["ece_debiased"])["ece_debiased"].value < plain
