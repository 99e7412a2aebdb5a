"""The benchmark of delays: its bound, its drifts and its detectors."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.monitoring import bound
from benchmarks.monitoring.stake import stakes


@pytest.fixture(scope="module")
def population() -> dict[str, bound.Drift]:
    return bound.drifts(2)


def test_bound_is_the_threshold_by_the_mean_divergence(population):
    """Of 80% confidence and 70% accuracy, the nearest tolerated accuracy is 78%."""
    drift = bound.Drift(np.full(4, 0.8), np.full(4, 0.7))
    rate = 0.7 * np.log(0.7 / 0.78) + 0.3 * np.log(0.3 / 0.22)
    assert drift.bound() == pytest.approx(np.log(20) / rate)
    assert bound.Drift(np.full(4, 0.8), np.full(4, 0.79)).bound() == np.inf
    gradual = drift._replace(duration=2_000)
    assert drift.bound() < gradual.bound() < drift.bound() + 2_000
    assert drift._replace(duration=1).bound() == pytest.approx(drift.bound(), abs=1)
    assert population["T x 1.3"].bound() == pytest.approx(1_108, rel=0.03)


def test_gradual_drift_grows_from_the_onset(population):
    drift = population["gradual, T x 1.5"]
    rows = np.zeros(3, np.intp)
    accuracy = drift.accuracy(rows, np.array([-5.0, 2_499.0, 9_000.0]))
    c, truth = drift.confidences[0], drift.truth[0]
    np.testing.assert_allclose(accuracy, [c, (c + truth) / 2, truth])


def test_oracle_is_near_the_bound_and_ours_is_later(population):
    drift = population["T x 1.6"]
    starts = bound.start_streams(drift, 300, 20)
    delays = bound.measure(drift, starts, adwin=False)
    assert 0.4 * delays.bound < delays.oracle < 1.3 * delays.bound
    assert delays.oracle < delays.ours < 4 * delays.bound
    assert delays.early == 0
    assert np.isnan(delays.adwin)


def test_drift_without_onset_starts_at_the_first_label(population):
    starts = bound.start_streams(population["T x 1.6"], 0, 5)
    assert all(len(start.correct) == start.state["labels"] == 0 for start in starts)
    assert bound.measure(population["T x 1.6"], starts, adwin=False).ours < 800


def test_interval_of_a_share_is_exact():
    """Without a hit in n draws, the upper end is 1 − .025^(1/n)."""
    assert bound._interval(0, 20) == pytest.approx((0, 1 - 0.025 ** (1 / 20)))
    assert bound._interval(20, 20) == pytest.approx((0.025 ** (1 / 20), 1))


def test_stake_is_lost_in_a_calibrated_time():
    """E is the stake: 1 at the first label, and on most streams less after ten thousand."""
    left = stakes(2, 5, (0, 10_000))
    np.testing.assert_array_equal(left[:, 0], 1)
    assert 0.05 < np.median(left[:, 1]) < 1
