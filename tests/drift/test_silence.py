"""Traffic without labels: which parts are silent, and what the monitor says of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import SCENES, measure
from recalib.drift import CalibrationSums, Cohort, Monitor, MonitorOptions, summarise_window
from recalib.drift.silence import describe_silence, is_silent, silent_bins, worst_gaps

EDGES = np.array([0.6, 0.7, 0.8, 0.9])
MIDDLES = np.array([0.55, 0.65, 0.75, 0.85, 0.95])


def sums_of(
    traffic: list[int], labelled: list[int], accuracy: NDArray[np.float64] = MIDDLES
) -> CalibrationSums:
    """Sums of predictions at the middle of each bin, with this accuracy."""
    sums = CalibrationSums.empty(EDGES)
    sums.add_counts(np.array(traffic))
    for p, n, share in zip(MIDDLES, labelled, accuracy, strict=True):
        sums.add_labels(np.full(n, p), np.arange(n) < round(n * share))
    return sums


@given(st.integers(0, 40), st.integers(0, 3_000), st.floats(0.001, 1), st.integers(1, 30))
def test_silent_means_significantly_few_labels(n: int, more: int, rate: float, parts: int) -> None:
    total = n + more
    filler = [total] * (parts - 1)  # fully labelled parts
    flags = is_silent([n, *filler], [total, *filler], rate)
    chance = scipy.stats.binom.cdf(n, total, rate)
    threshold = 0.01 / parts
    if abs(chance - threshold) > 1e-12:
        assert flags[0] == (n < 5 and chance < threshold)


def test_few_labels_by_chance_are_not_silence() -> None:
    """1% of a little traffic; 25% of 100 segments without labels; no labels at all."""
    assert not silent_bins(sums_of([100] * 5, [2, 0, 1, 0, 1])).any()
    labelled = np.repeat([0, 1, 2, 3], 25)
    assert not is_silent(labelled, np.full(100, 140), 0.01).any()
    assert not silent_bins(sums_of([100_000] * 5, [0] * 5)).any()


def test_bins_without_labels_are_silent_and_other_rates_are_not() -> None:
    np.testing.assert_array_equal(
        silent_bins(sums_of([1000] * 5, [300, 300, 30, 3, 0])), [False, False, False, True, True]
    )


def test_worst_gap_is_the_largest_error_within_a_bin() -> None:
    """By search over confidences and accuracies of 0 and 1, where only counts are known."""
    p = np.linspace(0, 1, 1001)
    where = np.searchsorted(EDGES, p, side="right")
    expected = [np.maximum(p, 1 - p)[where == b].max() for b in range(5)]
    sums = CalibrationSums.empty(EDGES)
    np.testing.assert_allclose(worst_gaps(sums), expected, atol=2e-3)
    sums.add_counts(np.full(5, 7))
    np.testing.assert_allclose(worst_gaps(sums), expected, atol=2e-3)


def test_worst_gap_uses_known_confidences() -> None:
    """The mean is exact where all confidences are known; others may be anywhere in the bin."""
    p = np.array([0.1, 0.5, 0.62, 0.78, 0.95])
    sums = CalibrationSums.empty(EDGES)
    sums.add_traffic(p)
    means = np.array([0.3, 0.62, 0.78, 0.85, 0.95])
    np.testing.assert_allclose(worst_gaps(sums)[[0, 1, 2, 4]], [0.7, 0.62, 0.78, 0.95])
    sums.add_counts(np.array([2, 1, 1, 0, 1]))
    high, low = np.array([0.6, 0.7, 0.8, 0.9, 1.0]), np.array([0, 0.6, 0.7, 0.8, 0.9])
    known = np.array([0.5, 0.5, 0.5, 0.0, 0.5])
    expected = np.maximum(known * means + (1 - known) * high, 1 - known * means - (1 - known) * low)
    np.testing.assert_allclose(worst_gaps(sums), expected)


def test_interval_includes_silent_traffic() -> None:
    """For any accuracy of the silent bins, the interval contains the error of all traffic."""
    sums = sums_of([1000] * 5, [400, 400, 400, 0, 0])
    window = summarise_window(sums, weighting="traffic")
    assert window.silent == 0.4
    assert window.ece is not None
    assert window.ece_low is not None
    assert window.ece_high is not None
    assert window.ece < 0.01
    known = 0.6 * window.ece
    for accuracy in (0.0, 0.85, 1.0):
        true = known + 0.2 * abs(0.85 - accuracy) + 0.2 * abs(0.95 - accuracy)
        assert window.ece_low <= true <= window.ece_high
    assert window.ece_high == pytest.approx(0.2 * 0.9 + 0.2 * 1.0, abs=0.05)
    by_labels = summarise_window(sums, weighting="labelled")
    assert by_labels.silent == 0
    assert by_labels.ece_high is not None
    assert by_labels.ece_high < 0.1


def test_intervals_without_silence_do_not_change() -> None:
    """Rates that differ by confidence are weighted by traffic, as before."""
    sums = sums_of([1000] * 5, [800, 400, 200, 100, 50])
    window = summarise_window(sums, weighting="traffic")
    assert window.silent == 0
    assert window.ece_high is not None
    assert window.ece_high < 0.1


def test_description_names_regions_and_segments() -> None:
    sums = sums_of([1000] * 5, [300, 0, 300, 0, 0])
    bins = silent_bins(sums)
    assert describe_silence(sums, bins, {}) == (
        "no labels for traffic with confidence from 0.60 to 0.70, above 0.80 (60%)"
    )
    eu = sums_of([500] * 5, [0] * 5)
    assert describe_silence(sums, np.zeros(5, bool), {"eu": eu}) == (
        "no labels for segment 'eu' (50% of traffic)"
    )
    assert describe_silence(sums, np.zeros(5, bool), {}) is None
    below = np.array([True, False, False, False, False])
    assert "below 0.60 (20%)" in str(describe_silence(sums, below, {}))
    many = {f"s{k}": eu for k in range(5)}
    assert "2 further segments" in str(describe_silence(sums, bins, many))


def test_segment_without_labels_keeps_all_traffic_unverified() -> None:
    """Until its labels stop, the state is fresh; one window later it is not."""
    monitor = Monitor(EDGES, options=MonitorOptions(window_labels=1_000, segments=2))
    rng = np.random.default_rng(0)
    states = []
    for hour in range(8):
        cohorts = {}
        for name in ("eu", "us"):
            p = rng.uniform(0.5, 1, 300)
            labelled = np.full(300, name == "us" or hour < 4)
            counts = np.histogram(p, [0, *EDGES, 1])[0]
            correct = rng.random(300) < p
            cohorts[name] = Cohort(counts, p[labelled], correct[labelled].astype(float))
        monitor.add(hour, hour + 1, cohorts)
        status = monitor.assess(hour + 1)
        states.append(status.state)
    assert states[3] == "fresh"
    assert states[-1] == "unverified"
    assert "no labels for segment 'eu' (50% of traffic)" in status.reason
    assert status.evidence.silent == pytest.approx(0.5)


@pytest.mark.parametrize("name", [name for name in SCENES if "segments" not in name])
def test_simulated_streams(name: str) -> None:
    """A few streams; `python -m benchmarks.monitoring.unlabelled` runs many of every kind."""
    scene = SCENES[name]
    outcome = measure(scene._replace(rows=max(scene.rows // 2, 800)), 2)
    assert outcome.covered == 2
    assert outcome.fresh_at_end == (2 if scene.is_fresh else 0)
