"""The coverage of prediction sets as a stream of the monitor and of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import recalib
from recalib.calibrator import Calibrator
from recalib.drift import Cohort, Monitor, MonitorOptions
from tests.fitting.conftest import draw

_OPTIONS = MonitorOptions(set_coverage=0.9, set_spread=0.01)


def covered_cohort(hits: NDArray[Any], **columns: Any) -> Cohort:
    return Cohort([len(hits)], np.full(len(hits), 0.9), hits, **columns)


def monitor_of(hits: NDArray[Any], options: MonitorOptions = _OPTIONS, **columns: Any) -> Monitor:
    """Return a monitor after cohorts of 500 rows whose confidences are calibrated."""
    monitor, rng = Monitor([], options=options), np.random.default_rng(0)
    for number, part in enumerate(np.split(hits, len(hits) // 500)):
        half = np.full(500, 0.5)
        rows = slice(500 * number, 500 * (number + 1))
        covered = covered_cohort(part, **{name: v[rows] for name, v in columns.items()})
        cohort = Cohort([500], half, rng.random(500) < 0.5)
        monitor.add(number, number + 1, cohort, promised={"(sets)": covered})
    return monitor


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    return recalib.fit(*draw(3_000, 5, 1.5), "temperature", sets="raps", coverage=0.9)


def test_lost_coverage_makes_a_calibrator_stale() -> None:
    hits = np.random.default_rng(1).random(4_000) < 0.8
    status = monitor_of(hits).assess(8.0)
    assert (status.state, status.segment) == ("stale", "(sets)")
    assert status.reason.startswith("the coverage of prediction sets is more than 3.0% below the")
    evidence = status.segments["(sets)"].evidence
    assert evidence.target == "set_coverage"
    assert evidence.confidence == pytest.approx(0.9)
    assert evidence.expected is None


def test_coverage_within_the_spread_of_its_thresholds_is_fresh() -> None:
    """87% where 90% are promised; tolerance 2% and spread 1%."""
    hits = np.random.default_rng(2).random(4_000) < 0.875
    assert monitor_of(hits).assess(8.0).segments["(sets)"].state == "fresh"


def test_more_coverage_than_promised_is_fresh() -> None:
    """Sets with the most probable class hold the label of nearly all rows of a good classifier."""
    hits = np.random.default_rng(6).random(4_000) < 0.998
    part = monitor_of(hits).assess(8.0).segments["(sets)"]
    assert part.state == "fresh"
    assert part.reason.startswith("shortfall of the coverage 0.0% on 4,000 labels")


def test_false_alarms_are_within_alpha() -> None:
    """Of 40 streams at α = 5%, the half of 10%: at most 5, the binomial's 97.5% quantile."""
    options = MonitorOptions(set_coverage=0.9, alpha=0.1, tolerance=0.0)
    hits = np.random.default_rng(3).random((40, 1_000)) < 0.9
    stale = sum(
        monitor_of(row, options).assess(2.0).segments["(sets)"].state == "stale" for row in hits
    )
    assert stale <= 5


def test_a_group_bets_once() -> None:
    """Five copies of a row are one; without groups they are evidence."""
    hits = np.repeat(np.random.default_rng(4).random(200) < 0.84, 5)
    groups = np.repeat(np.arange(1, 201), 5)
    with_groups = monitor_of(hits, groups=groups).assess(2.0).segments["(sets)"]
    assert with_groups.evidence.units == 200
    assert with_groups.state != "stale"


def test_saved_state_continues() -> None:
    hits = np.random.default_rng(5).random(2_000) < 0.85
    monitor = monitor_of(hits[:1_000])
    restored = Monitor([], options=_OPTIONS)
    restored.restore(monitor.state())
    assert restored == monitor
    without = {name: value for name, value in monitor.state().items() if name != "sets"}
    restored.restore(without)  # a state of an earlier version


def test_replay_monitors_the_sets_of_the_calibrator(calibrator: Calibrator) -> None:
    """Confidence and accuracy do not change; wrong rows have the least probable class."""
    logits, labels = draw(8_000, 5, 1.5, seed=2)
    probabilities = calibrator.predict(logits)
    moved = labels.copy()
    wrong = np.arange(8_000) >= 3_000
    wrong &= probabilities.argmax(axis=1) != labels
    moved[wrong] = probabilities.argmin(axis=1)[wrong]
    options: dict[str, Any] = {"time": np.arange(8_000.0), "calibrator": calibrator, "cohort": 500}
    before = recalib.monitor(probabilities=probabilities, label=labels, **options)
    assert before.state != "stale"
    after = recalib.monitor(probabilities=probabilities, label=moved, **options)
    status = after.events[-1].status
    assert (status.state, status.segment) == ("stale", "(sets)")
    assert 2_500 < (status.onset or 0) < 3_500
    sets = calibrator.predict_set(logits)
    last = status.segments["(sets)"].evidence
    assert last.labels == 8_000 or last.rejected_at is not None
    covered = sets[np.arange(8_000), labels]
    first = before.events[-1].status.segments["(sets)"].evidence
    window = slice(int(first.window_start or 0), int(np.ceil(first.window_end or 0)))
    assert first.accuracy == pytest.approx(covered[window].mean(), abs=0.002)


def test_a_log_without_labels_of_classes_has_no_sets(calibrator: Calibrator) -> None:
    result = recalib.monitor(
        np.full(400, 0.5), np.arange(400) % 2, np.arange(400), calibrator=calibrator
    )
    assert result.events[-1].status.segments == {}
