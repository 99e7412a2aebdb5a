"""The KS error: against scipy's statistic, and interval coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from recalib.metrics import METRICS, Predictions, ks_noise
from recalib.metrics.ks_error import _supremum_cdf
from tests.draws import few_or_many
from tests.metrics.rows import measure, rows

NAMES = ["ks_error", "ks_error_classwise"]


def test_equals_scipy_two_sample_statistic() -> None:
    """Of confidence and of rights, as scipy's two-sample statistic once both sum to one.

    Confidence in hundredths is that many copies of a row, a right row 100 copies: with as many
    rights as confidence in all, the two weighted samples are of one size.
    """
    rng = np.random.default_rng(0)
    hundredths = rng.integers(51, 100, 500)
    y = np.zeros(500, bool)
    y[rng.permutation(500)[: hundredths.sum() // 100]] = True
    hundredths[np.flatnonzero(y)[0]] -= hundredths.sum() - 100 * y.sum()
    assert hundredths.min() > 0
    p = hundredths / 100
    expected = scipy.stats.ks_2samp(np.repeat(p, hundredths), np.repeat(p[y], 100)).statistic
    # scipy's curves end at 1, ours at Σp/N.
    assert measure("ks_error", p, y).value == pytest.approx(expected * y.mean(), rel=1e-12)


def test_uniform_overconfidence_equals_the_mean_gap() -> None:
    p = np.array([0.6, 0.7, 0.8, 0.9])
    assert measure("ks_error", p, np.zeros(4, bool)).value == pytest.approx(0.75)


def test_cancelling_gaps_count_up_to_their_largest_sum() -> None:
    """Gaps of −0.4, then 0.4: half of the rows have a gap of 0.4."""
    p, y = np.repeat([0.6, 0.9], 100), np.arange(200) % 100 < np.repeat([100, 50], 100)
    assert measure("ks_error", p, y).value == pytest.approx(0.2)


def test_brownian_supremum_matches_published_quantiles() -> None:
    """Shorack and Wellner, Empirical Processes (1986), and the reflection bound beyond 3."""
    assert _supremum_cdf(1.9600) == pytest.approx(0.9, abs=1e-4)
    assert _supremum_cdf(2.2414) == pytest.approx(0.95, abs=1e-4)
    for x in (3.0, 5.0):
        assert _supremum_cdf(x) == pytest.approx(1 - 4 * scipy.stats.norm.sf(x), abs=1e-9)


@pytest.mark.usefixtures("without_floors")
@pytest.mark.parametrize("slope", [1.0, 0.98, 0.9])
@pytest.mark.parametrize("skewed", [False, True])
@few_or_many(40, 400)
def test_interval_covers_the_true_value(slope: float, skewed: bool, draws: int) -> None:
    """In 95% of draws, less two standard errors. The truth is the mean gap, of one sign."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        p = rng.beta(30, 0.6, 300) if skewed else rng.uniform(0.3, 1, 300)
        result = measure("ks_error", p, rng.random(300) < slope * p, 0.95)
        mean = 30 / 30.6 if skewed else 0.65
        covered += result.low <= (1 - slope) * mean <= result.high
    assert covered / draws >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.999999])
def test_interval_has_positive_width_at_any_level(level: float) -> None:
    result = measure("ks_error", [1.0], [True], level)
    assert result.value == result.low == 0
    assert 0 < result.high <= 1


def softmaxes(rng: np.random.Generator, classes: int) -> np.ndarray:
    return scipy.special.softmax(2 * rng.standard_normal((200, classes)), axis=1)


@pytest.mark.parametrize(("classes", "off"), [(2, 0.0), (2, 0.3), (10, 0.3)])
def test_classwise_interval_covers_the_true_value(
    classes: int, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 93% of 60 draws at least. Labels are class 0 in half of `off` of the rows, for any p."""
    monkeypatch.setattr(ks_noise, "_floors", lambda _: np.zeros(1))  # which take most of the time
    rng = np.random.default_rng(0)
    big = np.random.default_rng(1)
    p = np.concatenate([softmaxes(big, classes) for _ in range(100)])
    q = (1 - off / 2) * p
    q[:, 0] += off / 2
    columns = (np.argsort(p[:, k]) for k in range(classes))
    curves = [np.cumsum((q - p)[order, k]) for k, order in enumerate(columns)]
    truth = np.mean([np.abs(values).max() for values in curves]) / len(p)
    covered = 0
    for _ in range(60):
        p = softmaxes(rng, classes)
        labels = (p.cumsum(axis=1)[:, :-1] < rng.random((200, 1))).sum(axis=1)
        labels[rng.random(200) < off / 2] = 0
        predictions = Predictions.from_probabilities(p, labels)
        result = METRICS["ks_error_classwise"](15).measure(predictions, 0.95)
        covered += result.low <= truth <= result.high
        assert result.high - result.low < 0.2
    assert covered >= 56


def test_two_class_noise_equals_top_label_noise() -> None:
    """The columns mirror each other: their mean equals the top label's error."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 300)
    predictions = rows(p, rng.random(300) < p)
    top_label, classwise = (METRICS[name](15).measure(predictions, 0.9) for name in NAMES)
    assert classwise.high - classwise.value == pytest.approx(
        top_label.high - top_label.value, rel=1e-3
    )
    assert classwise.floor == pytest.approx(top_label.floor, rel=0.1)


def test_floor_draws_match_a_loop() -> None:
    """Floors against the metric of the same drawn labels, with ties."""
    rng = np.random.default_rng(0)
    p = np.round(rng.dirichlet(np.ones(4), 30) * 4) + 0.5
    p /= p.sum(axis=1, keepdims=True)
    result = ks_noise._floors(p)
    again = np.random.default_rng(0)
    upto = np.cumsum(p, axis=1)
    for value in result[:20]:
        labels = (upto <= again.random((30, 1)) * upto[:, -1:]).sum(axis=1)
        predictions = Predictions.from_probabilities(p, labels)
        expected = METRICS["ks_error_classwise"](15).measure(predictions).value
        assert value == pytest.approx(expected, abs=1e-12)
