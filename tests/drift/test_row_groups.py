"""Groups of dependent rows: a group bets once, and counts once in the window."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recalib.core.group_numbers import group_number
from recalib.drift import ClassRows, Cohort, Monitor, MonitorOptions
from recalib.drift.row_groups import RecentGroups, arrange_units, unit_weights
from recalib.errors import InputError

EDGES = [0.6, 0.7, 0.8, 0.9]
CLASSES = MonitorOptions(classes=(0, 1))


def rows(seed: int, number: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return confidences, correctness of a classifier that is too sure, and times."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.5, 1, number)
    return p, (rng.random(number) < p - 0.08).astype(float), np.sort(rng.random(number))


def add(monitor: Monitor, start: float, p, y, times, groups=None) -> None:
    traffic = np.bincount(np.searchsorted(EDGES, p, side="right"), minlength=5)
    cohort = Cohort(traffic, p, y, times=start + times, groups=groups)
    labels = np.where(y == 1, 0, 1)
    class_rows = ClassRows.from_probabilities(
        np.stack([p, 1 - p], axis=1), labels, start + times, (0, 1), groups=groups
    )
    monitor.add(start, start + 1, cohort, class_rows)


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_in_a_group_are_the_same_evidence_as_one_row(copies):
    """Interleaved with other rows, over several cohorts and blocks, with and without classes."""
    single, copied = Monitor(EDGES, options=CLASSES), Monitor(EDGES, options=CLASSES)
    for cohort in range(3):
        p, y, times = rows(cohort)
        groups = np.arange(1, len(p) + 1) + 1000 * cohort
        add(single, cohort, p, y, times)
        # All second copies come after all first ones.
        columns = [np.tile(column, copies) for column in (p, y, times, groups)]
        columns[2] = np.concatenate([times * (1 + k) / copies for k in range(copies)])
        order = np.argsort(columns[2], kind="stable")
        add(copied, cohort, *(column[order] for column in columns))
    one, many = single.assess(3.0), copied.assess(3.0)
    for name in ("log_evidence", "labels", "units", "accuracy", "ece", "suspicion"):
        assert getattr(many.evidence, name) == pytest.approx(getattr(one.evidence, name)), name
    # The shares of the bins are those of more predictions.
    assert many.evidence.ece_high == pytest.approx(one.evidence.ece_high, rel=0.002)
    assert many.evidence.n == copies * one.evidence.n
    assert one.classes
    assert many.classes
    assert many.classes.log_evidence == pytest.approx(one.classes.log_evidence)
    ungrouped = Monitor(EDGES, options=CLASSES)
    for cohort in range(3):
        add(ungrouped, cohort, *(np.repeat(column, copies) for column in rows(cohort)))
    assert ungrouped.assess(3.0).evidence.log_evidence > many.evidence.log_evidence + 3


def test_a_group_counts_in_the_first_cohort_that_has_it():
    """Also after its state is stored; its later labels are labels of traffic only."""
    p, y, times = rows(0)
    groups = np.arange(1, 301)
    first, both = Monitor(EDGES), Monitor(EDGES)
    for monitor in (first, both):
        add(monitor, 0, p, y, times, groups)
    restored = Monitor(EDGES)
    restored.restore(json.loads(json.dumps(both.state())))
    assert restored == both
    add(restored, 1, p, y, times, groups)
    evidence, before = restored.assess(2.0).evidence, first.assess(2.0).evidence
    assert (evidence.n, evidence.units, evidence.labels) == (600, 300, 300)
    assert evidence.log_evidence == before.log_evidence
    assert evidence.ece == before.ece
    assert evidence.coverage == 1.0
    add(first, 1, p, y, times, groups + 300)
    assert first.assess(2.0).evidence.labels == 600


def test_least_labels_are_of_groups():
    p, y, times = rows(0, 600)
    monitor = Monitor(EDGES, options=MonitorOptions(least_labels=300))
    add(monitor, 0, p, y, times, np.arange(600) // 30 + 1)
    status = monitor.assess(1.0)
    assert status.state == "unverified"
    assert "600 matured labels, 20 with each group once, in the window, fewer than" in status.reason


def test_units_follow_the_first_rows_of_groups():
    order, sizes = arrange_units(np.array([0, 7, 5, 7, 0, 5, 7]))
    assert order.tolist() == [0, 1, 3, 6, 2, 5, 4]
    assert sizes is not None
    assert sizes.tolist() == [1, 3, 2, 1]
    assert arrange_units(np.array([0, 3, 0, 2]))[1] is None
    assert unit_weights(np.array([0, 7, 7, 0])).tolist() == [1, 0.5, 0.5, 1]


def test_groups_of_the_latest_labels_are_remembered():
    recent = RecentGroups()
    recent.remember(np.arange(0, 1500))
    recent.remember(np.concatenate([[1], np.arange(1500, 2500)]))
    assert recent.are_new(np.array([0, 1, 2, 501, 2499])).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert len(recent.state()) == RecentGroups.limit


def test_numbers_of_groups_are_exact_in_a_double():
    numbers = {group_number(f"session {k}") for k in range(1000)}
    assert len(numbers) == 1000
    assert all(0 < number == int(float(number)) < 2**52 for number in numbers)
    assert group_number("") == 0


@pytest.mark.parametrize("groups", [[1, 2], [0.5] * 3, [-1, 0, 0]])
def test_groups_that_are_no_numbers_of_the_rows_are_rejected(groups):
    monitor = Monitor(EDGES)
    with pytest.raises(InputError) as excinfo:
        monitor.add(0, 1, Cohort(np.zeros(5, int), [0.6] * 3, [1] * 3, groups=groups))
    assert excinfo.value.field == "groups"
    assert monitor == Monitor(EDGES)
