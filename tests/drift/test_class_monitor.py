"""Class-wise monitoring: what a row counts for, evidence, alarms and states."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from recalib.core.watched_classes import watched_indices
from recalib.drift import (
    CalibrationTest,
    ClassMonitor,
    ClassRows,
    Cohort,
    Monitor,
    MonitorOptions,
)
from recalib.drift.class_rows import MAX_DENSE_CLASSES, MIN_PROBABILITY
from recalib.errors import InputError

_HOUR = 3_600.0
_SUSPICION = 10.0


def draw(rng: np.random.Generator, rows: int, classes: int = 4):
    """Return probabilities and labels of a calibrated classifier, with times in an hour."""
    logits = rng.normal(size=(rows, classes)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, labels_of(rng, p), np.sort(rng.random(rows)) * _HOUR


def labels_of(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=p.shape[1] - 1)


def swap_two(p: np.ndarray) -> np.ndarray:
    """Return p with classes 0 and 1 exchanged where neither is the top label, which stays right."""
    swapped, others = p.copy(), p.argmax(axis=1) > 1
    swapped[others, :2] = p[others, 1::-1]
    return swapped


def monitor(classes=(0, 1, 2, 3), alpha: float = 0.05) -> ClassMonitor:
    return ClassMonitor(classes, alpha=alpha, tolerance=0.02, suspicion=_SUSPICION)


def test_evidence_is_the_mean_over_classes():
    """Of tests that each see the probabilities of their class, one of them without rows."""
    rng = np.random.default_rng(0)
    p, y, times = draw(rng, 700)
    classes = monitor()
    rows = ClassRows.from_probabilities(p, y, times, (0, 1, 2, 3), excluded=np.full(700, 3))
    classes.add(0, _HOUR, rows)
    logs = [0.0]
    for k in range(3):
        test = CalibrationTest(alpha=0.05 / 4, tolerance=0.02)
        test.update(p[:, k], y == k)
        logs.append(test.log_evidence)
    evidence = classes.evidence()
    assert evidence.log_evidence == pytest.approx(np.log(np.mean(np.exp(logs))))
    assert evidence.labels == 700
    assert [gap.class_index for gap in evidence.worst] == list(np.argsort([-x for x in logs[1:]]))
    for gap in evidence.worst:
        values = p[:, gap.class_index]
        rows = (values >= gap.low) & (values < gap.high)
        assert gap.range_labels == rows.sum()
        assert gap.probability == pytest.approx(values[rows].mean())
        assert gap.frequency == pytest.approx(np.mean(y[rows] == gap.class_index))


def test_swap_of_two_classes_is_found_although_the_top_label_is_right():
    rng = np.random.default_rng(1)
    classes, top = monitor(), CalibrationTest()
    for cohort in range(5):
        p, _, times = draw(rng, 1_000)
        y = labels_of(rng, swap_two(p))
        rows = ClassRows.from_probabilities(p, y, times, (0, 1, 2, 3))
        classes.add(cohort * _HOUR, (cohort + 1) * _HOUR, rows)
        top.update(p.max(axis=1), p.argmax(axis=1) == y)
    assert not top.rejected
    evidence = classes.evidence()
    assert evidence.rejected
    assert evidence.rejected_time is not None
    assert evidence.rejected_time <= 5 * _HOUR
    first = evidence.worst[0]
    assert first.rejected
    assert abs(first.frequency - first.probability) > 0.03


def test_alarm_is_never_later_than_with_a_split():
    """It is up as soon as a class rejects at α/W; with errors of both classes it comes before."""
    rng = np.random.default_rng(2)
    classes = monitor((0, 1))
    tests = [CalibrationTest(alpha=0.05 / 2) for _ in range(2)]
    earlier = 0
    for cohort in range(300):
        p, _, times = draw(rng, 2, 2)
        y = labels_of(rng, np.clip(p, 0.3, 0.7))
        rows = ClassRows.from_probabilities(p, y, times, (0, 1))
        classes.add(cohort * _HOUR, (cohort + 1) * _HOUR, rows)
        for k, test in enumerate(tests):
            test.update(p[:, k], y == k)
        split, mean = any(test.rejected for test in tests), classes.evidence().rejected
        assert mean >= split
        earlier += mean and not split
    assert split
    assert earlier > 0


def test_calibrated_classes_raise_no_alarm():
    """In five streams of 1,000 labels; `python -m benchmarks.monitoring.class_wise` counts more."""
    for seed in range(5):
        rng = np.random.default_rng([3, seed])
        classes = monitor()
        classes.add(0, _HOUR, ClassRows.from_probabilities(*draw(rng, 1_000), (0, 1, 2, 3)))
        assert not classes.evidence().rejected


def test_state_continues_a_monitor():
    rng = np.random.default_rng(4)
    rows = [ClassRows.from_probabilities(*draw(rng, 300), (0, 1, 2, 3)) for _ in range(3)]
    first, second = monitor(), monitor()
    for number, part in enumerate(rows):
        first.add(number * _HOUR, (number + 1) * _HOUR, part)
        state = json.loads(json.dumps(second.state(), allow_nan=False))
        second = monitor()
        second.restore(state)
        second.add(number * _HOUR, (number + 1) * _HOUR, part)
    assert first.evidence() == second.evidence()
    assert first.onset == second.onset


def test_row_counts_for_watched_classes_only():
    p = np.array([[0.7, 0.2, 0.1], [0.0, 0.4, 0.6]])
    rows = ClassRows.from_probabilities(p, [2, 1], [5.0, 3.0], (1, 2))
    np.testing.assert_array_equal(rows.probabilities.toarray(), p[:, 1:])
    np.testing.assert_array_equal(rows.labels, [1, 0])
    others = ClassRows.from_probabilities(p, [0, 0], [5.0, 3.0], (0, 2), excluded=[0, 2])
    assert others.probabilities.nnz == 2
    np.testing.assert_array_equal(others.probabilities.toarray(), [[0, 0.1], [0, 0]])
    np.testing.assert_array_equal(others.labels, [0, 0])
    both = ClassRows.concatenate([rows, rows.select(np.array([True, False]))]).sort_by_time()
    np.testing.assert_array_equal(both.times, [3.0, 5.0, 5.0])
    np.testing.assert_array_equal(both.labels, [0, 1, 1])
    assert both.probabilities.nnz == 6


def test_probability_of_zero_counts():
    """A class that occurs although its probability is 0 is strong evidence."""
    rng = np.random.default_rng(5)
    p = np.tile([0.9, 0.1, 0.0], (300, 1))
    y = np.where(rng.random(300) < 0.1, 2, 0)
    classes = monitor((0, 1, 2))
    classes.add(0, _HOUR, ClassRows.from_probabilities(p, y, np.arange(300.0), (0, 1, 2)))
    evidence = classes.evidence()
    assert evidence.rejected
    assert 2 in [gap.class_index for gap in evidence.worst if gap.rejected]


def test_entries_of_a_row_are_bounded():
    """With many classes, those of small probability are left out; the top labels stay."""
    rng = np.random.default_rng(6)
    p, y, times = draw(rng, 200, 1_000)
    p[:, :3] += 1
    p /= p.sum(axis=1, keepdims=True)
    rows = ClassRows.from_probabilities(p, y, times, range(1_000))
    assert rows.probabilities.nnz == np.count_nonzero(p >= MIN_PROBABILITY) < 200 * 10
    assert np.diff(rows.probabilities.indptr).max() <= 1 / MIN_PROBABILITY
    dense = ClassRows.from_probabilities(p, y, times, range(MAX_DENSE_CLASSES))
    assert dense.probabilities.nnz == 200 * MAX_DENSE_CLASSES
    classes = monitor(range(1_000))
    classes.add(0, _HOUR, rows)
    assert len(classes.state()["classes"]) == np.count_nonzero((p >= MIN_PROBABILITY).any(axis=0))


def test_top_labels_count_for_their_class():
    rows = ClassRows.from_top_labels([0.9, 0.8, 0.7], [2, 0, 1], [2, 1, 2], [1.0, 2.0, 3.0], (1, 2))
    np.testing.assert_array_equal(rows.probabilities.toarray(), [[0, 0.9], [0.7, 0]])
    np.testing.assert_array_equal(rows.labels, [1, 1])
    np.testing.assert_array_equal(rows.times, [1.0, 3.0])


def test_classes_share_alpha_with_traffic_and_segments():
    def thresholds(**options) -> tuple[float, float | None]:
        edges = [0.5]
        status = Monitor(edges, options=MonitorOptions(alpha=0.06, **options)).assess(0.0)
        classes = status.classes
        return status.evidence.threshold, None if classes is None else classes.threshold

    assert thresholds() == (pytest.approx(-math.log(0.06)), None)
    third = pytest.approx(-math.log(0.02))
    assert thresholds(classes=(0, 1)) == (pytest.approx(-math.log(0.03)),) * 2
    assert thresholds(classes=(0, 1), segments=5) == (third, third)


def test_stale_class_makes_the_version_stale_and_is_named():
    """Top labels are right in every cohort; the refit may use labels from the onset on."""
    rng = np.random.default_rng(7)
    options = MonitorOptions(classes=(0, 1, 2, 3))
    names = ("ant", "bee", "cat", "dog")
    result = Monitor([0.5, 0.7], options=options, class_labels=names)
    states = []
    for cohort in range(8):
        start = cohort * _HOUR
        p, y, times = draw(rng, 1_000)
        if cohort >= 4:
            y = labels_of(rng, swap_two(p))
        top = p.max(axis=1)
        counts = np.bincount(np.searchsorted([0.5, 0.7], top, side="right"), minlength=3)
        rows = ClassRows.from_probabilities(p, y, start + times, (0, 1, 2, 3))
        part = Cohort(counts, top, p.argmax(axis=1) == y, times=start + times)
        result.add(start, start + _HOUR, part, rows)
        if cohort % 3 == 2:
            saved = json.loads(json.dumps(result.state()))
            result = Monitor([0.5, 0.7], options=options, class_labels=names)
            result.restore(saved)
        states.append(result.assess(start + _HOUR).state)
    status = result.assess(8 * _HOUR)
    assert "stale" not in states[:4]
    assert status.state == "stale"
    assert status.segment is None
    assert status.evidence.rejected_at is None
    assert status.onset == pytest.approx(4 * _HOUR, abs=2 * _HOUR)
    assert "class-wise test" in status.reason
    assert any(name in status.reason for name in names)
    json.dumps(status.to_dict(), allow_nan=False)


def test_classes_are_named_or_numbered():
    names = ("cat", "dog", "7")
    assert watched_indices(["all"], 3) == (0, 1, 2)
    assert watched_indices(["dog", "0"], 3, names) == (0, 1)
    assert watched_indices(["7", "1"], 3, names) == (1, 2)
    for classes in (["3"], ["eel"], ["-1"], [], ["1", "dog"], ["all", "0"], ["²"]):
        with pytest.raises(InputError, match="classes"):
            watched_indices(classes, 3, names)
    with pytest.raises(InputError, match="1 to 1,000"):
        watched_indices(["all"], 1_001)
