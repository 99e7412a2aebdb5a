"""The monitor: its states, its saved state, and the input that it rejects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.drift import (
    CalibrationSums,
    Cohort,
    Monitor,
    MonitorOptions,
    Status,
    quantile_edges,
    spend_alpha,
)
from recalib.errors import InputError

Values = NDArray[np.float64]
Truth = Callable[[Values], Values]

_HOUR = 3600.0


def confidences(rng: np.random.Generator, rows: int, centre: float = 1.5) -> Values:
    p = 1 / (1 + np.exp(-rng.normal(centre, 1.5, size=rows)))
    return np.maximum(p, 1 - p)


_CALIBRATION = confidences(np.random.default_rng(99), 5_000)
EDGES = quantile_edges(_CALIBRATION)
REFERENCE = np.bincount(np.searchsorted(EDGES, _CALIBRATION, side="right"))


def calibrated(p: Values) -> Values:
    return p


def overconfident(p: Values) -> Values:
    return 1 / (1 + ((1 - p) / p) ** 0.6)


def draw_cohort(
    rng: np.random.Generator,
    rows: int,
    truth: Truth = calibrated,
    *,
    centre: float = 1.5,
    share: float = 1.0,
) -> Cohort:
    """Draw a cohort; `share` of it is labelled, after a minute."""
    p = confidences(rng, rows, centre)
    sums = CalibrationSums.empty(EDGES)
    sums.add_traffic(p)
    p = p[rng.random(rows) < share]
    return Cohort(sums.traffic, p, rng.random(len(p)) < truth(p), np.full(len(p), 60.0))


def add_hours(monitor: Monitor, hours: range, draw: Callable[[], Cohort]) -> list[Status]:
    """Add a cohort per hour and return the status after each."""
    statuses = []
    for hour in hours:
        monitor.add(hour * _HOUR, (hour + 1) * _HOUR, draw())
        statuses.append(monitor.assess((hour + 1) * _HOUR))
    return statuses


def test_a_calibrator_is_unverified_before_enough_labels():
    rng = np.random.default_rng(0)
    monitor = Monitor(EDGES, REFERENCE)
    status = monitor.assess(0.0)
    assert (status.state, status.since, status.onset) == ("unverified", 0.0, None)
    assert "0 matured labels" in status.reason
    statuses = add_hours(monitor, range(45), lambda: draw_cohort(rng, 200, share=0.5))
    states = [status.state for status in statuses]
    assert states[0] == "unverified"
    assert states[-1] == "fresh"
    assert set(states) == {"unverified", "fresh"}
    last = statuses[-1]
    assert last.since == min(status.since for status in statuses if status.state == "fresh")
    assert 4_000 - 120 <= last.evidence.n < 4_200
    assert last.evidence.coverage == pytest.approx(0.5, abs=0.05)
    assert last.evidence.delay == 60.0
    assert last.evidence.ece_high < monitor.options.objective


def test_old_labels_leave_the_window():
    rng = np.random.default_rng(1)
    monitor = Monitor(EDGES, REFERENCE)
    assert add_hours(monitor, range(20), lambda: draw_cohort(rng, 200))[-1].state == "fresh"
    late = monitor.assess(20 * _HOUR + monitor.options.oldest_seconds)
    assert (late.state, late.evidence.n) == ("unverified", 0)


def test_drift_makes_a_calibrator_suspect_then_stale():
    """Drift begins after 20 hours. The onset is near it; `stale` stays when the drift ends."""
    rng = np.random.default_rng(2)
    monitor = Monitor(EDGES, REFERENCE)
    before = add_hours(monitor, range(20), lambda: draw_cohort(rng, 200))
    after = add_hours(monitor, range(20, 60), lambda: draw_cohort(rng, 200, lambda p: p - 0.05))
    states = [status.state for status in after]
    assert before[-1].state == "fresh"
    first = states.index("stale")
    assert "suspect" in states[:first]
    assert set(states[first:]) == {"stale"}
    stale = after[first]
    assert stale.evidence.rejected_at is not None
    assert stale.onset == pytest.approx(20 * _HOUR, abs=5 * _HOUR)
    assert "rejected" in stale.reason
    assert add_hours(monitor, range(60, 90), lambda: draw_cohort(rng, 200))[-1].state == "stale"


def test_the_onset_is_the_time_of_a_row():
    """Drift in the middle of a long cohort: a refit must not use the rows before it."""
    rng = np.random.default_rng(2)
    monitor = Monitor(EDGES, REFERENCE)
    cohort = draw_cohort(rng, 4_000)
    p = np.asarray(cohort.confidences)
    truth = np.where(np.arange(4_000) < 2_000, p, p - 0.2)
    times = np.arange(4_000.0)
    drifted = Cohort(cohort.traffic, p, rng.random(4_000) < truth, times=times)
    monitor.add(0.0, 4_000.0, drifted)
    status = monitor.assess(4_000.0)
    assert status.state == "stale"
    assert status.onset == pytest.approx(2_000, abs=300)
    timeless = Monitor(EDGES, REFERENCE)
    timeless.add(0.0, 4_000.0, Cohort(cohort.traffic, p, drifted.correct))
    assert timeless.assess(4_000.0).onset == 0.0


def test_a_confidence_shift_is_suspect_until_labels_show_that_it_is_harmless():
    rng = np.random.default_rng(3)
    monitor = Monitor(EDGES, REFERENCE, MonitorOptions(least_labels=1_000))
    unlabelled = add_hours(monitor, range(4), lambda: draw_cohort(rng, 500, centre=0.8, share=0.0))
    assert unlabelled[-1].state == "suspect"
    assert "shifted" in unlabelled[-1].reason
    labelled = add_hours(monitor, range(4, 20), lambda: draw_cohort(rng, 500, centre=0.8))[-1]
    assert labelled.state == "fresh"
    assert "although confidences have shifted" in labelled.reason


def test_a_shift_of_unmatured_traffic_is_suspect():
    """The traffic served now has not matured and differs from the window."""
    rng = np.random.default_rng(4)
    monitor = Monitor(EDGES, REFERENCE)
    add_hours(monitor, range(20), lambda: draw_cohort(rng, 200))
    served = draw_cohort(rng, 2_000, centre=0.5).traffic
    assert monitor.assess(20 * _HOUR).state == "fresh"
    assert monitor.assess(20 * _HOUR, served).state == "suspect"
    assert monitor.assess(20 * _HOUR, draw_cohort(rng, 2_000).traffic).state == "fresh"


def test_an_error_above_the_objective_is_suspect():
    """The error is within the tolerance, so the test cannot reject, but above the objective."""
    rng = np.random.default_rng(5)
    options = MonitorOptions(tolerance=0.2, objective=0.02)
    monitor = Monitor(EDGES, REFERENCE, options)
    last = add_hours(monitor, range(40), lambda: draw_cohort(rng, 200, lambda p: p - 0.1))[-1]
    assert last.state == "suspect"
    assert "above the objective" in last.reason


def test_the_reason_names_selective_labels():
    rng = np.random.default_rng(6)
    monitor = Monitor(EDGES, REFERENCE)

    def selective() -> Cohort:
        p = confidences(rng, 1_000)
        sums = CalibrationSums.empty(EDGES)
        sums.add_traffic(p)
        p = p[rng.random(1_000) < 1.2 - p]
        return Cohort(sums.traffic, p, rng.random(len(p)) < p)

    last = add_hours(monitor, range(10), selective)[-1]
    assert last.evidence.selective
    assert "labels come more often" in last.reason
    assert last.state == "fresh"


@pytest.mark.slow
def test_drift_of_a_segment_is_found_when_all_traffic_hides_it():
    rng = np.random.default_rng(7)
    monitor = Monitor(EDGES, REFERENCE, MonitorOptions(segments=2))
    for hour in range(60):
        parts = {"web": draw_cohort(rng, 1_000), "app": draw_cohort(rng, 100, overconfident)}
        monitor.add(hour * _HOUR, (hour + 1) * _HOUR, parts)
    status = monitor.assess(60 * _HOUR)
    assert (status.state, status.segment) == ("stale", "app")
    assert status.reason.startswith("segment 'app': ")
    assert status.segments["web"].state == "fresh"
    assert status.evidence.rejected_at is None
    assert status.segments["app"].evidence.threshold == pytest.approx(np.log(4 / 0.05))
    assert status.onset == status.segments["app"].onset


@pytest.mark.parametrize("segments", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_restored_monitor_continues_exactly(segments):
    """Saved as JSON and restored after every cohort, it gives exactly the same status."""

    def stream() -> Callable[[], Any]:
        rng = np.random.default_rng(8)
        if segments:
            return lambda: {"a": draw_cohort(rng, 150, overconfident), "b": draw_cohort(rng, 150)}
        return lambda: draw_cohort(rng, 300, overconfident)

    options = MonitorOptions(segments=segments)
    original, restored = Monitor(EDGES, REFERENCE, options), Monitor(EDGES, REFERENCE, options)
    first, second = stream(), stream()
    for hour in range(30):
        original.add(hour * _HOUR, (hour + 1) * _HOUR, first())
        restored.add(hour * _HOUR, (hour + 1) * _HOUR, second())
        now = (hour + 1) * _HOUR
        assert restored.assess(now).to_dict() == original.assess(now).to_dict()
        text = json.dumps(restored.state(), allow_nan=False)
        restored = Monitor(EDGES, REFERENCE, options)
        restored.restore(json.loads(text))
    json.dumps(original.assess(30 * _HOUR).to_dict(), allow_nan=False)
    assert original.assess(30 * _HOUR).state == "stale"


def test_the_saved_state_has_a_constant_size():
    """After 600 cohorts with few or no labels; the window still holds enough."""
    rng = np.random.default_rng(9)
    monitor = Monitor(EDGES, REFERENCE)
    sizes = []
    for minute in range(600):
        monitor.add(minute * 60.0, (minute + 1) * 60.0, draw_cohort(rng, 20, share=minute % 2))
        if minute % 10 < 2:  # with labels, and without
            sizes.append(len(json.dumps(monitor.state())))
    assert max(sizes[80:]) < 1.1 * max(sizes[20:80])
    assert 4_000 <= monitor.assess(36_000.0).evidence.n < 4_500


@pytest.mark.parametrize(
    ("start", "end", "parts", "field"),
    [
        (0.0, 2.0, {"": ([0.9], [1])}, "start"),
        (5.0, 5.0, {"": ([0.9], [1])}, "start"),
        (float("nan"), 5.0, {"": ([0.9], [1])}, "start"),
        (1.0, 2.0, {"": ([1.1], [1])}, "confidences"),
        (1.0, 2.0, {"": ([0.9], [3])}, "correct"),
        (1.0, 2.0, {"web": ([0.9], [1])}, "segments"),
    ],
)
def test_a_bad_cohort_is_rejected_and_changes_nothing(start, end, parts, field):
    monitor = Monitor(EDGES)
    monitor.add(0.0, 1.0, Cohort(REFERENCE, [0.9], [1]))
    before = monitor.state()
    with pytest.raises(InputError) as excinfo:
        monitor.add(start, end, {n: Cohort(REFERENCE, *rows) for n, rows in parts.items()})
    assert excinfo.value.field == field
    assert monitor.state() == before


def test_rows_of_all_segments_are_sorted_by_time():
    """The split into segments changes nothing; a rejection has the time of a prediction."""
    rng = np.random.default_rng(10)
    p = confidences(rng, 3_000)
    y, times = (rng.random(3_000) < overconfident(p)).astype(float), np.sort(rng.random(3_000))
    single = Monitor(EDGES, options=MonitorOptions(segments=2))
    split = Monitor(EDGES, options=MonitorOptions(segments=2))
    half = rng.random(3_000) < 0.5
    no_traffic = np.zeros_like(REFERENCE)
    single.add(0.0, 1.0, {"a": Cohort(no_traffic, p, y, times=times)})
    parts = {
        name: Cohort(no_traffic, p[at], y[at], times=times[at])
        for name, at in (("a", half), ("b", ~half))
    }
    split.add(0.0, 1.0, parts)
    first, second = single.assess(1.0).evidence, split.assess(1.0).evidence
    assert first.rejected_at is not None
    assert (first.rejected_at, first.log_evidence) == (second.rejected_at, second.log_evidence)
    assert first.rejected_time == second.rejected_time == times[first.rejected_at - 1]


def test_a_cohort_may_be_empty():
    monitor = Monitor(EDGES)
    monitor.add(0.0, 1.0, {})
    assert monitor.assess(1.0).state == "unverified"


def test_too_many_segments_are_rejected():
    monitor = Monitor(EDGES, options=MonitorOptions(segments=1))
    monitor.add(0.0, 1.0, {"a": Cohort(REFERENCE, [], [])})
    with pytest.raises(InputError):
        monitor.add(1.0, 2.0, {"b": Cohort(REFERENCE, [], [])})


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.0},
        {"tolerance": 0.5},
        {"objective": 0.0},
        {"least_labels": 1},
        {"window_labels": 10},
        {"oldest_seconds": 0.0},
        {"suspicion": 1.0},
        {"segments": -1},
    ],
)
def test_bad_options_are_rejected(options):
    with pytest.raises(InputError):
        MonitorOptions(**options)


def test_the_error_rates_of_all_versions_sum_to_alpha():
    spent = [spend_alpha(0.05, k) for k in range(1, 20_000)]
    assert sum(spent) < 0.05
    assert sum(spent) == pytest.approx(0.05, rel=1e-3)
    with pytest.raises(InputError):
        spend_alpha(0.05, 0)
