"""The KS error: scipy's statistic where there is one, and an interval that keeps its level."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from recalib.metrics.ks_error import _within
from tests.metrics.rows import measure


def test_it_is_the_distance_of_two_weighted_distributions() -> None:
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


def test_overconfidence_everywhere_is_the_mean_gap() -> None:
    p = np.array([0.6, 0.7, 0.8, 0.9])
    assert measure("ks_error", p, np.zeros(4, bool)).value == pytest.approx(0.75)


def test_gaps_that_cancel_count_as_far_as_they_come() -> None:
    """0.4 too few, then 0.4 too many: half of the rows are off by 0.4."""
    p, y = np.repeat([0.6, 0.9], 100), np.arange(200) % 100 < np.repeat([100, 50], 100)
    assert measure("ks_error", p, y).value == pytest.approx(0.2)


def test_the_supremum_of_brownian_motion_has_its_published_quantiles() -> None:
    """Shorack and Wellner, Empirical Processes (1986), and the reflection bound beyond 3."""
    assert _within(1.9600) == pytest.approx(0.9, abs=1e-4)
    assert _within(2.2414) == pytest.approx(0.95, abs=1e-4)
    for x in (3.0, 5.0):
        assert _within(x) == pytest.approx(1 - 4 * scipy.stats.norm.sf(x), abs=1e-9)


@pytest.mark.parametrize("slope", [1.0, 0.98, 0.9])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_interval_holds_the_truth(slope: float, skewed: bool) -> None:
    """In 95% of 400 draws, less two standard errors. The truth is the mean gap, of one sign."""
    rng = np.random.default_rng(0)
    covered, draws = 0, 400
    for _ in range(draws):
        p = rng.beta(30, 0.6, 300) if skewed else rng.uniform(0.3, 1, 300)
        found = measure("ks_error", p, rng.random(300) < slope * p, 0.95)
        mean = 30 / 30.6 if skewed else 0.65
        covered += found.low <= (1 - slope) * mean <= found.high
    assert covered / draws >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.999999])
def test_any_level_has_a_width(level: float) -> None:
    found = measure("ks_error", [1.0], [True], level)
    assert found.value == found.low == 0
    assert 0 < found.high <= 1
