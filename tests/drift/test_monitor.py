"""The monitor: what each state needs, what it remembers, and what it refuses."""

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


_SEEN = confidences(np.random.default_rng(99), 5_000)
EDGES = quantile_edges(_SEEN)
REFERENCE = np.bincount(np.searchsorted(EDGES, _SEEN, side="right"))


def calibrated(p: Values) -> Values:
    return p


def too_sure(p: Values) -> Values:
    return 1 / (1 + ((1 - p) / p) ** 0.6)


def part(
    rng: np.random.Generator,
    rows: int,
    truth: Truth = calibrated,
    *,
    centre: float = 1.5,
    share: float = 1.0,
) -> Cohort:
    """Draw a part of which a share is labelled, an hour later."""
    p = confidences(rng, rows, centre)
    sums = CalibrationSums.empty(EDGES)
    sums.add_traffic(p)
    p = p[rng.random(rows) < share]
    return Cohort(sums.traffic, p, rng.random(len(p)) < truth(p), np.full(len(p), 60.0))


def fed(monitor: Monitor, hours: range, draw: Callable[[], Cohort]) -> list[Status]:
    found = []
    for hour in hours:
        monitor.add(hour * _HOUR, (hour + 1) * _HOUR, draw())
        found.append(monitor.assess((hour + 1) * _HOUR))
    return found


def test_a_calibrator_is_unverified_until_labels_verify_it():
    rng = np.random.default_rng(0)
    monitor = Monitor(EDGES, REFERENCE)
    nothing = monitor.assess(0.0)
    assert (nothing.state, nothing.since, nothing.onset) == ("unverified", 0.0, None)
    assert "0 matured labels" in nothing.reason
    statuses = fed(monitor, range(45), lambda: part(rng, 200, share=0.5))
    states = [one.state for one in statuses]
    assert states[0] == "unverified"
    assert states[-1] == "fresh"
    assert set(states) == {"unverified", "fresh"}
    last = statuses[-1]
    assert last.since == min(one.since for one in statuses if one.state == "fresh")
    assert 4_000 - 120 <= last.evidence.n < 4_200
    assert last.evidence.coverage == pytest.approx(0.5, abs=0.05)
    assert last.evidence.delay == 60.0
    assert last.evidence.ece_high < monitor.options.objective


def test_labels_that_are_too_old_verify_nothing():
    rng = np.random.default_rng(1)
    monitor = Monitor(EDGES, REFERENCE)
    assert fed(monitor, range(20), lambda: part(rng, 200))[-1].state == "fresh"
    late = monitor.assess(20 * _HOUR + monitor.options.oldest_seconds)
    assert (late.state, late.evidence.n) == ("unverified", 0)


def test_drift_makes_it_suspect_and_then_stale_for_good():
    """From 20 hours on; the onset is near, and a quiet time later does not heal what is stale."""
    rng = np.random.default_rng(2)
    monitor = Monitor(EDGES, REFERENCE)
    before = fed(monitor, range(20), lambda: part(rng, 200))
    after = fed(monitor, range(20, 60), lambda: part(rng, 200, lambda p: p - 0.06))
    states = [one.state for one in after]
    assert before[-1].state == "fresh"
    first = states.index("stale")
    assert "suspect" in states[:first]
    assert set(states[first:]) == {"stale"}
    stale = after[first]
    assert stale.evidence.rejected_at is not None
    assert stale.onset == pytest.approx(20 * _HOUR, abs=5 * _HOUR)
    assert "rejected" in stale.reason
    assert fed(monitor, range(60, 90), lambda: part(rng, 200))[-1].state == "stale"


def test_the_onset_is_a_row_s_own_time():
    """A drift in the middle of a long cohort: a refit wants none of what came before it."""
    rng = np.random.default_rng(2)
    monitor = Monitor(EDGES, REFERENCE)
    many = part(rng, 4_000)
    p = np.asarray(many.confidences)
    truth = np.where(np.arange(4_000) < 2_000, p, p - 0.2)
    times = np.arange(4_000.0)
    whole = Cohort(many.traffic, p, rng.random(4_000) < truth, times=times)
    monitor.add(0.0, 4_000.0, whole)
    found = monitor.assess(4_000.0)
    assert found.state == "stale"
    assert found.onset == pytest.approx(2_000, abs=300)
    timeless = Monitor(EDGES, REFERENCE)
    timeless.add(0.0, 4_000.0, Cohort(many.traffic, p, whole.correct))
    assert timeless.assess(4_000.0).onset == 0.0


def test_a_shift_of_confidences_alone_makes_suspect_until_labels_say_it_is_harmless():
    rng = np.random.default_rng(3)
    monitor = Monitor(EDGES, REFERENCE, MonitorOptions(least_labels=1_000))
    unlabelled = fed(monitor, range(4), lambda: part(rng, 500, centre=0.8, share=0.0))
    assert unlabelled[-1].state == "suspect"
    assert "shifted" in unlabelled[-1].reason
    labelled = fed(monitor, range(4, 20), lambda: part(rng, 500, centre=0.8))[-1]
    assert labelled.state == "fresh"
    assert "although confidences have shifted" in labelled.reason


def test_labels_of_other_confidences_do_not_excuse_a_shift_of_what_is_served():
    """What is served now, not matured yet, is unlike the window that was verified."""
    rng = np.random.default_rng(4)
    monitor = Monitor(EDGES, REFERENCE)
    fed(monitor, range(20), lambda: part(rng, 200))
    served = part(rng, 2_000, centre=0.5).traffic
    assert monitor.assess(20 * _HOUR).state == "fresh"
    assert monitor.assess(20 * _HOUR, served).state == "suspect"
    assert monitor.assess(20 * _HOUR, part(rng, 2_000).traffic).state == "fresh"


def test_an_error_over_the_objective_makes_suspect():
    """Where the tolerance lets it pass: the test cannot reject, the objective is missed."""
    rng = np.random.default_rng(5)
    options = MonitorOptions(tolerance=0.2, objective=0.02)
    monitor = Monitor(EDGES, REFERENCE, options)
    last = fed(monitor, range(40), lambda: part(rng, 200, lambda p: p - 0.1))[-1]
    assert last.state == "suspect"
    assert "over the objective" in last.reason


def test_selective_labels_are_said():
    rng = np.random.default_rng(6)
    monitor = Monitor(EDGES, REFERENCE)

    def selective() -> Cohort:
        p = confidences(rng, 1_000)
        sums = CalibrationSums.empty(EDGES)
        sums.add_traffic(p)
        p = p[rng.random(1_000) < 1.2 - p]
        return Cohort(sums.traffic, p, rng.random(len(p)) < p)

    last = fed(monitor, range(10), selective)[-1]
    assert last.evidence.selective
    assert "labels come more often" in last.reason
    assert last.state == "fresh"


def test_a_segment_drifts_that_all_traffic_hides():
    rng = np.random.default_rng(7)
    monitor = Monitor(EDGES, REFERENCE, MonitorOptions(segments=2))
    for hour in range(60):
        parts = {"web": part(rng, 1_000), "app": part(rng, 100, too_sure)}
        monitor.add(hour * _HOUR, (hour + 1) * _HOUR, parts)
    found = monitor.assess(60 * _HOUR)
    assert (found.state, found.segment) == ("stale", "app")
    assert found.reason.startswith("segment 'app': ")
    assert found.segments["web"].state == "fresh"
    assert found.evidence.rejected_at is None
    assert found.segments["app"].evidence.threshold == pytest.approx(np.log(4 / 0.05))
    assert found.onset == found.segments["app"].onset


@pytest.mark.parametrize("segments", [0, 2])
def test_a_state_goes_on_where_it_stopped(segments):
    """Saved as JSON after every cohort, it says the same to the last digit."""

    def stream() -> Callable[[], Any]:
        rng = np.random.default_rng(8)
        if segments:
            return lambda: {"a": part(rng, 150, too_sure), "b": part(rng, 150)}
        return lambda: part(rng, 300, too_sure)

    options = MonitorOptions(segments=segments)
    whole, restored = Monitor(EDGES, REFERENCE, options), Monitor(EDGES, REFERENCE, options)
    one, other = stream(), stream()
    for hour in range(30):
        whole.add(hour * _HOUR, (hour + 1) * _HOUR, one())
        restored.add(hour * _HOUR, (hour + 1) * _HOUR, other())
        now = (hour + 1) * _HOUR
        assert restored.assess(now).to_dict() == whole.assess(now).to_dict()
        text = json.dumps(restored.state(), allow_nan=False)
        restored = Monitor(EDGES, REFERENCE, options)
        restored.restore(json.loads(text))
    json.dumps(whole.assess(30 * _HOUR).to_dict(), allow_nan=False)
    assert whole.assess(30 * _HOUR).state == "stale"


def test_what_it_keeps_does_not_grow():
    """Thousands of cohorts without labels, and of few; the window still holds enough."""
    rng = np.random.default_rng(9)
    monitor = Monitor(EDGES, REFERENCE)
    sizes = []
    for minute in range(600):
        monitor.add(minute * 60.0, (minute + 1) * 60.0, part(rng, 20, share=minute % 2))
        sizes.append(len(json.dumps(monitor.state())))
    assert max(sizes[400:]) < 1.1 * max(sizes[100:400])
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
def test_bad_cohorts_are_refused_and_none_taken(start, end, parts, field):
    monitor = Monitor(EDGES)
    monitor.add(0.0, 1.0, Cohort(REFERENCE, [0.9], [1]))
    before = monitor.state()
    with pytest.raises(InputError) as refused:
        monitor.add(start, end, {n: Cohort(REFERENCE, *rows) for n, rows in parts.items()})
    assert refused.value.field == field
    assert monitor.state() == before


def test_rows_are_taken_in_the_order_of_their_times():
    """Whatever segment they are in; and the rejection is at the time of a prediction."""
    rng = np.random.default_rng(10)
    p = confidences(rng, 3_000)
    y, times = (rng.random(3_000) < too_sure(p)).astype(float), np.sort(rng.random(3_000))
    one = Monitor(EDGES, options=MonitorOptions(segments=2))
    other = Monitor(EDGES, options=MonitorOptions(segments=2))
    half = rng.random(3_000) < 0.5
    none = np.zeros_like(REFERENCE)
    one.add(0.0, 1.0, {"a": Cohort(none, p, y, times=times)})
    parts = {
        name: Cohort(none, p[at], y[at], times=times[at])
        for name, at in (("a", half), ("b", ~half))
    }
    other.add(0.0, 1.0, parts)
    found, same = one.assess(1.0).evidence, other.assess(1.0).evidence
    assert found.rejected_at is not None
    assert (found.rejected_at, found.log_evidence) == (same.rejected_at, same.log_evidence)
    assert found.rejected_time == same.rejected_time == times[found.rejected_at - 1]


def test_a_cohort_may_be_empty():
    monitor = Monitor(EDGES)
    monitor.add(0.0, 1.0, {})
    assert monitor.assess(1.0).state == "unverified"


def test_too_many_segments_are_refused():
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
def test_bad_options_are_refused(options):
    with pytest.raises(InputError):
        MonitorOptions(**options)


def test_alpha_is_spent_over_versions():
    spent = [spend_alpha(0.05, k) for k in range(1, 20_000)]
    assert sum(spent) < 0.05
    assert sum(spent) == pytest.approx(0.05, rel=1e-3)
    with pytest.raises(InputError):
        spend_alpha(0.05, 0)
