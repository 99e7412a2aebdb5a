"""Signals without labels: the shift of confidences and of class priors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from recalib.drift import confidence_shift, estimate_priors, quantile_edges
from recalib.errors import InputError
from tests.draws import few_or_many


def test_bins_have_equal_counts_and_ties_share_a_bin():
    values = np.arange(1, 1_001) / 1_000
    edges = quantile_edges(values, 10)
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=10)
    assert counts.min() >= 99
    assert counts.max() <= 101
    assert quantile_edges(np.ones(50), 10).tolist() == []
    assert len(quantile_edges(np.array([0.2] * 90 + [0.9] * 10), 10)) == 1


@pytest.mark.parametrize(("n", "m"), [(300, 300), (5_000, 500), (2_000, 50_000)])
@few_or_many(200, 1_000)
def test_the_false_alarm_rate_is_near_1_percent(n, m, draws):
    """Pairs of samples of one distribution; as many as fail have a probability of 0.001."""
    rng = np.random.default_rng(n)
    alarms = 0
    for _ in range(draws):
        reference = rng.beta(8, 1.5, size=n)
        edges = quantile_edges(reference)
        before = np.bincount(np.searchsorted(edges, reference, side="right"))
        # One multinomial draw instead of m rows: the bins have their true probabilities.
        shares = np.diff(scipy.stats.beta.cdf([0, *edges, 1], 8, 1.5))
        alarms += confidence_shift(before, rng.multinomial(m, shares)).shifted
    assert alarms <= scipy.stats.binom.isf(1e-3, draws, 0.01)


def test_a_shift_is_detected():
    rng = np.random.default_rng(1)
    edges = quantile_edges(rng.beta(8, 1.5, size=5_000))
    before = np.histogram(rng.beta(8, 1.5, size=5_000), [0, *edges, 1])[0]
    now = np.histogram(rng.beta(5, 1.5, size=1_000), [0, *edges, 1])[0]
    assert confidence_shift(before, now).shifted


def test_psi_equals_its_formula():
    shift = confidence_shift(np.array([30, 70]), np.array([60, 40]))
    r, s = np.array([30.5, 70.5]) / 101, np.array([60.5, 40.5]) / 101
    assert shift.psi == pytest.approx(float(((s - r) * np.log(s / r)).sum()))
    assert shift.threshold == pytest.approx(6.6349 * 2 / 100, rel=1e-4)  # χ² of one degree at .99
    assert confidence_shift(np.array([5]), np.array([9])).shifted is False


@pytest.mark.parametrize(
    ("reference", "served"),
    [([1, 2], [1]), ([0, 0], [1, 2]), ([1, 2], [0, 0]), ([1, -1], [1, 1]), ([[1]], [[1]])],
)
def test_bad_counts_are_rejected(reference, served):
    with pytest.raises(InputError):
        confidence_shift(np.array(reference), np.array(served))


def densities_of(rng: np.random.Generator, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw rows of three normal classes, and return the density of each class at each."""
    x = rng.normal(2.0 * rng.choice(3, size=20_000, p=shares), 1.0)
    densities: NDArray[np.float64] = np.exp(-0.5 * (x[:, None] - 2.0 * np.arange(3)) ** 2)
    return densities


def test_changed_priors_are_estimated():
    """Exact posteriors for priors .5, .3, .2; the rows have priors .1, .3, .6."""
    rng = np.random.default_rng(2)
    before, now = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    p = densities_of(rng, now) * before
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(estimate_priors(p, before), now, atol=0.02)
    p = densities_of(rng, before) * before
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(estimate_priors(p, before), before, atol=0.02)


def test_a_class_with_prior_0_keeps_it():
    p = np.array([[0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.0, 0.0, 1.0]])
    priors = estimate_priors(p, np.array([0.5, 0.5, 0.0]))
    assert priors[2] == 0
    assert priors.sum() == pytest.approx(1)
    assert np.all(np.isfinite(priors))


@pytest.mark.parametrize(
    ("p", "priors"),
    [(np.zeros((0, 2)), [0.5, 0.5]), (np.ones((2, 2)) / 2, [0.5, 0.4]), ([[1.0]], [0.5, 0.5])],
)
def test_bad_priors_are_rejected(p, priors):
    with pytest.raises(InputError):
        estimate_priors(np.array(p), np.array(priors))
