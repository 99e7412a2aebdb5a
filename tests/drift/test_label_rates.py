"""Label rates over time: labels that stop, become rare, or are rare by chance or by rhythm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from recalib.drift import CalibrationSums, Cohort, Monitor, MonitorOptions, Status, summarise_window
from recalib.drift.label_rates import RatedWindow, rate_window, weigh_by_traffic
from recalib.drift.monitor_state import warnings_in

_HOUR = 3_600.0
_EDGES = np.array([0.6, 0.7, 0.8, 0.9])
_EMPTY = CalibrationSums.empty(_EDGES)


def draw_states(
    rates: list[float],
    rows: int,
    *,
    off: Callable[[int], float] = lambda number: 0.0,
    seconds: float = _HOUR,
    pause: float = 0.0,
    every: int = 1,
    seed: int = 0,
) -> list[Status]:
    """The status after `every` cohorts of `rows` predictions, with these label rates and errors."""
    rng = np.random.default_rng(seed)
    monitor = Monitor(_EDGES, options=MonitorOptions(label_pause_seconds=pause))
    statuses = []
    for number, rate in enumerate(rates):
        p = rng.uniform(0.5, 1, rows)
        correct = rng.random(rows) < p - off(number)
        labelled = rng.random(rows) < rate
        counts = np.histogram(p, [0, *_EDGES, 1])[0]
        end = (number + 1) * seconds
        monitor.add(end - seconds, end, Cohort(counts, p[labelled], correct[labelled]))
        if number % every == every - 1:
            statuses.append(monitor.assess(end))
    return statuses


def window_of(traffic: list[int], labelled: list[int], pause: float = 0.0) -> RatedWindow:
    """A window of hours with these numbers in one bin; all confidences are right."""
    entries = []
    for hour, (total, n) in enumerate(zip(traffic, labelled, strict=True)):
        sums = CalibrationSums.empty(_EDGES)
        sums.add_counts([total, 0, 0, 0, 0])
        sums.add_labels(np.full(n, 0.5), np.arange(n) % 2)
        entries.append((hour * _HOUR, (hour + 1) * _HOUR, sums))
    return rate_window(entries, _EMPTY, -1.0, pause)


def test_fresh_ends_before_a_tenth_of_the_window_has_no_labels() -> None:
    """Labels stop when a drift begins; the reason says since when, also weeks later."""
    rates, stop = [0.5] * 42 + [0.0] * 60, 42 * 4 * _HOUR
    statuses = draw_states(rates, 200, off=lambda k: 0.2 * (k >= 42), seconds=4 * _HOUR)
    assert statuses[41].state == "fresh"
    after = statuses[42:]
    ended = next(status for status in after if status.state != "fresh")
    assert 0 < ended.evidence.silent < 0.1
    assert ended.state == "unverified"
    assert f"no labels since {stop:,.0f} (" in ended.reason
    assert {status.state for status in after[after.index(ended) :]} == {"unverified"}
    last = after[-1]
    assert last.evidence.n == 0  # a window is at most a week old
    assert last.evidence.silent == 1
    assert last.evidence.silent_since == pytest.approx(stop, abs=12 * _HOUR)


def test_a_drop_of_the_label_rate_widens_the_interval() -> None:
    """From 50% to 2%: the few labels stand for all predictions since then, and show the drift."""
    statuses = draw_states([0.5] * 10 + [0.02] * 10, 1_000, off=lambda hour: 0.2 * (hour >= 10))
    assert statuses[9].state == "fresh"
    for hour, status in enumerate(statuses[11:], start=11):
        first = status.evidence.window_start
        assert first is not None
        true = 0.2 * (hour - 9) / (hour + 1 - first / _HOUR)
        assert status.evidence.ece_low <= true <= status.evidence.ece_high
        assert status.state != "fresh"
        assert status.evidence.silent == 0
    assert status.evidence.ece == pytest.approx(true, abs=0.05)
    assert not any(warnings_in(earlier.evidence.to_dict()) for earlier in statuses[:10])
    assert warnings_in(status.evidence.to_dict()) == ["labels_rare"]
    assert status.evidence.rare_since == 10 * _HOUR
    assert status.evidence.rare_coverage == pytest.approx(0.02, abs=0.005)
    assert status.evidence.usual_coverage == pytest.approx(0.5, abs=0.02)
    assert "labels are rare since 36,000 (1.7% of predictions, 49.5% before)" in status.reason


def test_labels_are_rare_while_the_window_has_others() -> None:
    """The widening is that of weights by traffic; a rate that stays is the usual one later."""
    window = window_of([1_000] * 4, [500, 500, 500, 20])
    n = np.array([1_500, 20])
    weights = np.repeat([3_000 / 1_500, 1_000 / 20], n)
    widening = np.sqrt(n.sum() * (weights**2).sum()) / weights.sum()
    assert window.rare == (3 * _HOUR, 0.02, 0.5, pytest.approx(widening))
    assert window_of([1_000] * 4, [500, 20, 20, 500]).rare is None
    assert window_of([1_000] * 4, [500, 500, 500, 350]).rare is None  # not half of it
    assert window_of([1_000] * 4, [20] * 4).rare is None
    assert window_of([1_000] * 4, [500, 500, 500, 20], pause=2 * _HOUR).rare is None
    assert window_of([1_000] * 4, [500, 500, 500, 0]).rare is None  # silent


def test_a_few_labels_do_not_end_rare_labels() -> None:
    """A short last cohort has a high label rate by chance; five labels are enough."""
    rare = window_of([1_000] * 4 + [2], [500, 500, 500, 20, 1]).rare
    assert rare is not None
    assert rare.since == 3 * _HOUR
    assert window_of([1_000] * 4 + [10], [500, 500, 500, 20, 5]).rare is None
    assert window_of([1_000] * 4 + [2], [500, 500, 500, 500, 1]).rare is None


def test_hours_without_labels_by_chance_are_no_silence() -> None:
    """Labels of a random 1% leave 37% of cohorts of 100 rows without any."""
    statuses = draw_states([0.01] * 600, 100, seconds=300.0, every=20)
    assert {status.evidence.silent for status in statuses} == {0.0}
    assert statuses[-1].evidence.n > 500


@pytest.mark.parametrize("pause", [0.0, 12 * _HOUR])
def test_nights_without_labels_are_unknown_unless_they_are_declared(pause: float) -> None:
    days = [0.4 * (hour % 24 < 12) for hour in range(24 * 4)]
    last = draw_states(days, 400, pause=pause, every=24)[-1]
    if pause:
        assert (last.state, last.evidence.silent) == ("fresh", 0.0)
    else:
        assert last.state == "unverified"
        assert "no labels since 302,400" in last.reason
        assert "predictions from 216,000 to 259,200" in last.reason


def test_labels_that_stop_for_longer_than_the_pause_are_missed() -> None:
    rates = [0.4 * (hour % 24 < 12 and hour < 24 * 4) for hour in range(24 * 6)]
    last = draw_states(rates, 400, pause=12 * _HOUR, every=24)[-1]
    assert last.evidence.silent_since == 84 * _HOUR


@settings(max_examples=50)
@given(
    st.integers(1, 5_000),
    st.integers(1, 5_000),
    st.floats(0, 1),
    st.integers(0, 4),
)
def test_silence_is_improbable_by_the_exact_law(
    before: int, after: int, share: float, few: int
) -> None:
    """The hypergeometric law of labels at random; without any label, also the converse."""
    n, k = round(share * before), min(few, after)
    silent = bool(window_of([before, after], [n, k]).silent_times)
    if silent:
        assert scipy.stats.hypergeom.cdf(k, before + after, n + k, after) <= 2.1e-13
    if k == 0:
        evidence = n * np.log1p(after / before)
        if abs(evidence - 29.24) > 0.01:
            assert silent == (evidence > 29.24)


def test_a_window_begins_with_labels() -> None:
    window = window_of([1_000] * 5, [0, 0, 300, 300, 0])
    assert (window.start, window.end) == (2 * _HOUR, 5 * _HOUR)
    assert window.silent_times == [(4 * _HOUR, 5 * _HOUR, 1_000)]
    assert window.silent_since == 4 * _HOUR
    assert window.sums.traffic.sum() == 2_000
    assert window_of([1_000] * 3, [0, 0, 0]).silent_times == []


def test_rows_of_a_rarely_labelled_time_count_by_its_traffic() -> None:
    """Weighted moments are those of repeated rows, for rates of 1/2 and 1/10."""
    window = window_of([1_000] * 2, [500, 100])
    weighted, squared = weigh_by_traffic(window.strata)
    assert len(window.strata) == 2
    ratio = squared.weight[0] / weighted.weight[0]
    repeated = CalibrationSums.empty(_EDGES)
    for rows, copies in ((500, 1), (100, 5)):
        repeated.add_labels(np.full(rows * copies, 0.5), np.arange(rows * copies) % 2)
    for mine, other in zip(weighted, repeated.moments, strict=True):
        np.testing.assert_allclose(mine / weighted.weight.sum(), other / 1_000)
    assert weighted.weight.sum() == pytest.approx(600)
    assert ratio == pytest.approx(0.6 * (500 + 2_500) / 1_000)


def test_calibrated_versions_are_fresh_after_about_the_labels_needed() -> None:
    """With half of them no stream is fresh, with twice as many nearly each is."""
    first = draw_states([1.0], 300)[0]
    needed = first.evidence.labels_needed
    assert needed is not None
    assert f"is fresh after about {float(f'{needed:.1e}'):,.0f} labels" in first.reason
    for factor, low, high in ((0.5, 0, 0), (2.0, 9, 10)):
        states = [draw_states([1.0], int(factor * needed), seed=k)[0].state for k in range(10)]
        assert low <= states.count("fresh") <= high


def test_errors_of_a_silent_time_may_cancel_those_of_its_bins() -> None:
    """Half of the traffic is 10 points off; the other half may be off the other way."""
    sums = CalibrationSums.empty(_EDGES)
    sums.add_counts([0, 0, 0, 0, 4_000])
    sums.add_labels(np.full(4_000, 0.95), np.arange(4_000) % 20 < 17)
    silent = sums.traffic_only()
    window = summarise_window(sums, weighting="traffic", silent_traffic=silent)
    assert window.silent == 0.5
    assert window.ece_low == 0
    assert window.ce_low == 0
    assert window.ece_high == pytest.approx(0.05 + 0.5, abs=0.02)
    alone = summarise_window(sums, weighting="traffic")
    assert alone.ece_low == pytest.approx(0.1, abs=0.02)
