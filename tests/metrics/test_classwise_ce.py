"""The unbiased class-wise error: bias, joined bins, and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from benchmarks.coverage import CLASSWISE, without_floors
from benchmarks.populations import Classes
from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.quadratic_form import QuadraticForm
from tests.draws import few_or_many

Values = NDArray[np.float64]


def measure(
    p: Values, y: NDArray[np.int64], bins: int = 15, level: float | None = 0.95
) -> Estimate:
    return METRICS["classwise_ce"](bins).measure(Predictions.from_probabilities(p, y), level)


def test_squared_error_is_unbiased() -> None:
    """400 rows of 3 classes, 1,000 times; one confidence per bin, so θ is known.

    Class 0 has probability 0.5 and frequency 0.8, the others 0.3 and 0.2 with half of the rest.
    """
    rng = np.random.default_rng(0)
    p = np.tile([0.5, 0.3, 0.2], (400, 1))
    expected = (0.3**2 + 0.2**2 + 0.1**2) / 3
    labels = rng.choice(3, (1000, 400), p=[0.8, 0.1, 0.1])
    squares = np.array([measure(p, y, level=None).value ** 2 for y in labels])
    assert squares.mean() == pytest.approx(expected, abs=3 * squares.std() / math.sqrt(1000))
    assert squares.std() < 0.2 * expected


def test_calibrated_error_is_zero_in_half_of_samples() -> None:
    """The mean of θ̂ is 0; the plug-in error of the same rows is never near 0."""
    population, rng = Classes(10, "calibrated"), np.random.default_rng(0)
    samples = [population.draw(300, rng) for _ in range(100)]
    zeros = sum(METRICS["classwise_ce"](15).measure(rows).value == 0 for rows in samples)
    assert 30 < zeros < 70
    assert min(METRICS["marginal_ece_l2"](15).measure(rows).value for rows in samples) > 0.04


def test_bins_with_one_row_are_joined_downwards() -> None:
    """Of class 0, 0.95 and 0.85 form one bin, 0.45 and twice 0.25 the other."""
    first = np.array([0.95, 0.85, 0.45, 0.25, 0.25])
    p = np.stack([first, 1 - first], axis=1)
    y = np.ones(5, np.int64)
    r = (y == 0) - first
    joined = 2 * r[0] * r[1]  # the mean product of a pair, times two rows
    three = r[2] * r[3] + r[2] * r[4] + r[3] * r[4]  # of three rows: the sum of three products
    mirrored = 2 * r[3] * r[4] + (r[0] * r[1] + r[0] * r[2] + r[1] * r[2])  # of class 1
    expected = (joined + three + mirrored) / (2 * 5)
    assert expected > 0
    assert measure(p, y, 10).value == pytest.approx(math.sqrt(expected), rel=1e-12)


def test_interval_in_one_bin_inverts_the_chi_squared_test() -> None:
    """Two classes in one bin each: the columns mirror each other, so T is that of one gap.

    At θ = 0 it is v(χ²₁ − 1). The variance adds two rows at the mean probability, and 4/K = 2 rows
    with and without the label.
    """
    p = np.tile([0.6, 0.4], (300, 1))
    for right in (180, 199, 200, 201):
        y = np.repeat([0, 1], [right, 300 - right])
        result = measure(p, y, 1)
        q = (right + 2 * 0.6 + 2) / (300 + 2 + 4)
        variance = q * (1 - q) / 300
        sample = (right / 300 * (1 - right / 300)) / 302
        squared = ((right - 180) ** 2 - 300 * (0.36 + right / 300 * -0.2)) / (300 * 299)
        assert result.value == pytest.approx(math.sqrt(max(squared, 0)), rel=1e-9)
        chance = scipy.stats.chi2.sf(squared / max(variance, sample) + 1, 1)
        assert (result.low > 0) == (chance < 0.025), right


def test_quadratic_form_of_equal_scales_is_chi_squared() -> None:
    """Five scales of 0.3: 0.3(χ²₅ − 5)."""
    form = QuadraticForm(2 * 5 * 0.3**2, 8 * 5 * 0.3**3)
    for value in (-1.2, 0.0, 2.5):
        expected = scipy.stats.chi2.cdf(value / 0.3 + 5, 5)
        assert form.at_most(value) == pytest.approx(expected, rel=1e-12)
    quantile = form.quantiles(np.array([0.9]))
    assert quantile == pytest.approx(0.3 * (scipy.stats.chi2.ppf(0.9, 5) - 5), rel=1e-9)


def test_quadratic_form_of_unequal_scales_matches_draws() -> None:
    """One large and many small scales, all with noncentrality, as under a tested θ."""
    rng = np.random.default_rng(0)
    scales = np.append(np.full(20, 0.05), 0.5)
    shifts = np.append(np.full(20, 1.0), 2.5)
    z = rng.standard_normal((200_000, 21))
    drawn = ((z + shifts) ** 2 - 1 - shifts**2) @ scales
    form = QuadraticForm(
        float(np.sum(2 * scales**2 + 4 * scales**2 * shifts**2)),
        float(np.sum(8 * scales**3 + 24 * scales**3 * shifts**2)),
    )
    for tail in (0.025, 0.5, 0.975):
        assert form.at_most(float(np.quantile(drawn, tail))) == pytest.approx(tail, abs=0.012)


@pytest.mark.parametrize("classes", [2, 10])
def test_floor_matches_calibrated_rows(classes: int) -> None:
    """Of 400 other data sets of the same confidences; skewness is approximate, so to a fifth."""
    rng = np.random.default_rng(4)
    p = Classes(classes, "calibrated").draw(300, rng).probabilities
    upto = np.cumsum(p, axis=1)[:, :-1]
    labels = [(upto < rng.random((300, 1))).sum(axis=1) for _ in range(400)]
    errors = [measure(p, y, level=None).value for y in labels]
    result = measure(p, labels[0])
    assert result.floor == pytest.approx(np.mean(errors), rel=0.2)
    assert result.floor_high == pytest.approx(np.quantile(errors, 0.95), rel=0.12)


@pytest.mark.parametrize("classes", [2, 100])
def test_correct_rows_of_certainty_do_not_prove_zero_error(classes: int) -> None:
    p = np.zeros((200, classes))
    p[:, 0] = 1
    result = measure(p, np.zeros(200, np.int64))
    assert result.value == result.low == 0
    assert 0 < result.high < 0.2


@pytest.mark.parametrize("level", [1e-9, 0.5, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("rows", [1, 2, 3, 40])
def test_interval_contains_the_value(level: float, rows: int) -> None:
    rng = np.random.default_rng(rows)
    p, y = rng.dirichlet(np.ones(4) / 4, rows), rng.integers(0, 4, rows)
    result = measure(p, y, level=level)
    assert 0 <= result.low <= result.value <= result.high <= 1
    assert 0 <= result.floor <= result.floor_high <= 1


def intervals(population: Classes, rows: int, draws: int, name: str) -> tuple[Values, Values]:
    """Return values and ends of 95% intervals, (draws, 3), and the true values (draws,)."""
    rng = np.random.default_rng(0)
    with without_floors():
        samples = [population.draw(rows, rng) for _ in range(draws)]
        estimates = [METRICS[name](15).measure(sample, 0.95) for sample in samples]
    ends = [(estimate.value, estimate.low, estimate.high) for estimate in estimates]
    truths = [CLASSWISE[name](population, sample) for sample in samples]
    return np.array(ends, float), np.array(truths)


def covers(ends: Values, truths: Values) -> NDArray[np.bool_]:
    return (ends[:, 1] - 1e-9 <= truths) & (truths <= ends[:, 2] + 1e-9)


def width_ratio(ends: Values) -> float:
    """Return the mean width over that of an interval that knows the deviation of the value."""
    return float(np.mean(ends[:, 2] - ends[:, 1]) / (2 * 1.96 * ends[:, 0].std()))


@pytest.mark.parametrize(
    ("classes", "law", "truth"),
    [
        (2, "pairs", "some classes wrong"),
        (3, "rare", "calibrated"),
        (10, "confident", "too sure"),
    ],
)
@few_or_many(40, 400)
def test_interval_covers_the_true_value(classes: int, law: str, truth: str, draws: int) -> None:
    """In 93% of draws of 200 rows, less two standard errors."""
    ends, truths = intervals(Classes(classes, truth, law), 200, draws, "classwise_ce")
    assert np.mean(covers(ends, truths)) >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)


@pytest.mark.slow
def test_interval_of_many_classes_is_nearly_ideal() -> None:
    """K = 100, N = 1,000: at most 1.5 times the width that the deviation gives, not ten times."""
    population = Classes(100, "some classes wrong")
    ends, truths = intervals(population, 1000, 60, "classwise_ce")
    assert covers(ends, truths).sum() >= 52
    assert width_ratio(ends) < 1.5
    assert width_ratio(intervals(population, 1000, 40, "classwise_ece")[0]) > 5
