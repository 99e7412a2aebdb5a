"""Predicted classes whose labels stop: found, named, and counted with their largest error."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from recalib.drift import (
    CalibrationSums,
    ClassTraffic,
    Cohort,
    Monitor,
    MonitorOptions,
    SilentClasses,
    summarise_window,
)
from recalib.errors import InputError

_EDGES = np.array([0.6, 0.7, 0.8, 0.9])
_CLASSES = (2, 5, 7)


def traffic_of(predictions: Sequence[int], labelled: Sequence[int], total: int) -> ClassTraffic:
    """Return traffic of confidence 0.8, all labels of which are right."""
    predicted = np.repeat(_CLASSES, labelled)
    return ClassTraffic.from_rows(
        _CLASSES,
        predictions,
        0.8 * np.array(predictions),
        total,
        predicted,
        np.ones(len(predicted)),
        np.full(len(predicted), 0.8),
    )


def test_class_with_significantly_few_labels_is_silent() -> None:
    """Its share of all traffic counts, with predictions of classes that are not watched."""
    traffic = traffic_of([100, 400, 1], [50, 0, 0], 1_000)
    silent = traffic.silent_classes(["two", "five", "seven"])
    assert silent == SilentClasses({"five": 0.4}, pytest.approx(0.8 * 0.4))
    windows = traffic.windows(_CLASSES)
    assert [(window.class_index, window.predictions) for window in windows] == [
        (2, 100),
        (5, 400),
        (7, 1),
    ]
    assert [(window.labelled, window.silent) for window in windows] == [
        (50, False),
        (0, True),
        (0, False),
    ]
    assert (windows[0].accuracy, windows[0].confidence) == (1.0, pytest.approx(0.8))
    assert windows[1].accuracy is None
    both = traffic_of([100, 400, 200], [50, 0, 0], 1_000).silent_classes(["two", "five", "seven"])
    assert both == SilentClasses({"five": 0.4, "seven": 0.2}, pytest.approx(0.8 * 0.6))


def test_more_labels_than_counted_traffic_are_not_silent() -> None:
    """Servers of an earlier version do not count predicted classes."""
    traffic = traffic_of([0, 0, 0], [50, 60, 70], 1_000)
    assert not traffic.silent().any()
    assert ClassTraffic.empty(3).silent_classes(["a", "b", "c"]) == SilentClasses({}, 0.0)


def test_sums_merge_and_continue_from_json() -> None:
    first, second = traffic_of([3, 0, 0], [1, 0, 0], 10), traffic_of([1, 4, 0], [1, 2, 0], 8)
    both = first.merge(second)
    assert both.predictions.tolist() == [4, 4, 0, 10]
    assert both.labelled.tolist() == [2, 2, 0, 0]
    restored = ClassTraffic.from_dict(json.loads(json.dumps(both.to_dict())))
    for name, values in vars(both).items():
        np.testing.assert_array_equal(getattr(restored, name), values, strict=True)
    with pytest.raises(InputError, match="predictions"):
        ClassTraffic.from_rows(_CLASSES, [1, 2], [0.5, 1.0], 3, [], [], [])


def test_silent_class_may_cancel_the_error_of_the_others() -> None:
    """Labels say 20 points too sure. With a silent half that is 20 points unsure, ECE is 0."""
    sums = CalibrationSums.empty(_EDGES)
    sums.add_traffic(np.full(20_000, 0.75))
    sums.add_labels(np.full(10_000, 0.75), np.arange(10_000) % 20 < 11)
    window = summarise_window(sums, weighting="traffic")
    assert window.ece_low is not None
    assert window.ece_low > 0.15
    half = SilentClasses({"class 1": 0.5}, 0.5 * 0.75)
    silent = summarise_window(sums, weighting="traffic", silent_classes=half)
    assert (silent.ece_low, silent.ce_low) == (0, 0)


def test_interval_contains_every_error_of_silent_classes() -> None:
    """A fifth of each bin has no labels, and is right always, as often as it says, or never."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 20_000)
    silent = rng.random(len(p)) < 0.2
    shares = SilentClasses({"class 1": silent.mean()}, p[silent].sum() / len(p))
    sums = CalibrationSums.empty(_EDGES)
    sums.add_traffic(p)
    correct = rng.random(len(p)) < p
    sums.add_labels(p[~silent], correct[~silent])
    window = summarise_window(sums, weighting="traffic", silent_classes=shares)
    assert window.silent == pytest.approx(silent.mean())
    where = np.searchsorted(_EDGES, p, side="right")
    for right in (np.zeros(len(p)), p, np.ones(len(p))):
        gaps = np.bincount(where, np.where(silent, right - p, 0.0)) / len(p)
        assert window.ece_low is not None
        assert window.ece_high is not None
        assert window.ece_low <= np.abs(gaps).sum() <= window.ece_high
    assert window.ce_high is not None
    assert window.ce_high >= np.sqrt(0.2) * 0.8
    labelled = summarise_window(sums, weighting="labelled", silent_classes=shares)
    assert labelled.silent == 0


@pytest.mark.parametrize("share", [0.25, 0.01])
def test_labels_of_a_predicted_class_stop(share: float) -> None:
    """The state is fresh before. One window later it follows from the class's share of traffic."""
    options = MonitorOptions(window_labels=1_500, classes=(0, 1), objective=0.08)
    monitor = Monitor(_EDGES, options=options, class_labels=("cat", "dog", "bird"))
    rng = np.random.default_rng(0)
    states = []
    for hour in range(10):
        p = rng.uniform(0.5, 1, 1_000)
        predicted = np.where(rng.random(1_000) < share, 1, 2)
        labelled = (predicted != 1) | (hour < 5)
        correct = (rng.random(1_000) < p).astype(float)
        counts = np.histogram(p, [0, *_EDGES, 1])[0]
        cohort = Cohort(counts, p[labelled], correct[labelled])
        watched = np.bincount(predicted, minlength=3)[:2]
        errors = np.bincount(predicted, p, 3)[:2]
        rows = predicted[labelled], correct[labelled], p[labelled]
        traffic = ClassTraffic.from_rows((0, 1), watched, errors, 1_000, *rows)
        monitor.add(hour, hour + 1, cohort, class_traffic=traffic)
        again = Monitor(_EDGES, options=options, class_labels=("cat", "dog", "bird"))
        again.restore(json.loads(json.dumps(monitor.state())))
        monitor = again
        status = monitor.assess(hour + 1)
        states.append(status.state)
    assert states[4] == "fresh"
    assert status.evidence.silent == pytest.approx(share, abs=0.03)
    assert status.classes is not None
    assert [window.silent for window in status.classes.windows] == [True]
    assert "no labels for predictions of class 1 'dog'" in status.reason
    assert states[-1] == ("unverified" if share > 0.1 else "fresh")


def test_state_of_an_earlier_version_continues_without_a_window() -> None:
    monitor = Monitor(_EDGES, options=MonitorOptions(classes=(0, 1)))
    cohort, traffic = Cohort(np.full(5, 20), [], []), ClassTraffic.empty(2)
    monitor.add(0, 1, cohort, class_traffic=traffic)
    state = json.loads(json.dumps(monitor.state()))
    del state["classes"]["window"]
    monitor.restore(state)
    monitor.add(1, 2, cohort, class_traffic=traffic)
    status = monitor.assess(2)
    assert status.classes is not None
    assert status.classes.windows == []


def test_traffic_of_other_classes_is_rejected() -> None:
    monitor = Monitor(_EDGES, options=MonitorOptions(classes=(0, 1)))
    cohort = Cohort(np.zeros(5, np.int64), [], [])
    with pytest.raises(InputError, match="class_traffic"):
        monitor.add(0, 1, cohort, class_traffic=ClassTraffic.empty(3))
