"""Accuracy, F1 and AUC without labels: exact, covered, withheld."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from recalib.cli.monitoring import expected_text
from recalib.drift import (
    CalibrationSums,
    Cohort,
    Monitor,
    MonitorOptions,
    expected_performance,
)
from recalib.drift.expected_performance import expected_performance_of_sums
from recalib.errors import InputError

RNG = np.random.default_rng(4)
#: Of a binary classifier.
P = 1 / (1 + np.exp(-RNG.normal(-0.5, 2, 3_000)))


def scores(p: np.ndarray, y: np.ndarray) -> tuple[float, ...]:
    return accuracy_score(y, p > 0.5), f1_score(y, p > 0.5), roc_auc_score(y, p)


def test_expectation_and_interval_are_those_of_labels_drawn_from_the_probabilities() -> None:
    """An independent implementation on 400 draws: means, and coverage of at least 92.5%."""
    expected = expected_performance(P, target="positive_class")
    draws = np.array([scores(P, RNG.random(len(P)) < P) for _ in range(400)])
    for column, part in zip(draws.T, (expected.accuracy, expected.f1, expected.auc), strict=True):
        assert part is not None
        assert part.value == pytest.approx(column.mean(), abs=4 * column.std() / 20 + 1e-4)
        # Binomial(400, .95) is below 370 with probability .01.
        assert np.mean((column >= part.low) & (column <= part.high)) >= 0.925
        assert (part.high - part.low) / 2 == pytest.approx(1.96 * column.std(), rel=0.2)


@pytest.mark.parametrize("edges", [[0.1, 0.3, 0.7, 0.9], [0.1, 0.5, 0.9], [0.6]])
def test_bins_around_one_half_are_divided(edges: list[float]) -> None:
    """F1 and accuracy of evenly spread rows are those of single rows."""
    p = np.linspace(0, 1, 4_001)
    sums = CalibrationSums.empty(np.array(edges))
    sums.add_traffic(p)
    bins = expected_performance_of_sums(sums, "positive_class")
    rows = expected_performance(p, target="positive_class")
    assert bins is not None
    assert bins.f1 is not None
    assert rows.f1 is not None
    assert bins.accuracy.value == pytest.approx(rows.accuracy.value, abs=1e-3)
    assert bins.f1.value == pytest.approx(rows.f1.value, abs=1e-3)
    assert bins.predictions == rows.predictions


def test_certain_predictions_have_no_error() -> None:
    expected = expected_performance([0.0, 1.0, 1.0], target="positive_class")
    for part in (expected.accuracy, expected.f1, expected.auc):
        assert part is not None
        assert (part.value, part.low, part.high) == (1, 1, 1)
    alone = expected_performance([0.0, 0.0], target="positive_class")
    assert (alone.accuracy.value, alone.f1, alone.auc) == (1, None, None)


def test_groups_of_equal_rows_are_the_rows() -> None:
    values, counts = [0.2, 0.6, 0.9], [3, 5, 2]
    groups = expected_performance(values, counts, target="positive_class")
    rows = expected_performance(np.repeat(values, counts), target="positive_class")
    for name in ("accuracy", "f1", "auc"):
        one, other = getattr(groups, name), getattr(rows, name)
        assert one.value == pytest.approx(other.value)
        assert one.low == pytest.approx(other.low)
    assert groups.predictions == rows.predictions == 10


@pytest.mark.parametrize("probabilities", [[], [1.2], [float("nan")], [[0.5]]])
def test_invalid_probabilities_are_refused(probabilities: list) -> None:
    with pytest.raises(InputError):
        expected_performance(probabilities)


def test_error_of_the_calibrator_is_in_the_interval() -> None:
    """The frequencies of 200 calibration sets, one for each bin, are the probabilities.

    The values of 5,000 predictions are in at most 40% of the intervals of drawn labels alone.
    """
    truth, counts, sizes = np.array([0.1, 0.3, 0.6, 0.9]), np.full(4, 1_250), np.full(4, 75)
    hits = np.zeros(2)
    for _ in range(200):
        p = RNG.binomial(sizes, truth) / sizes
        right = RNG.binomial(counts, np.where(p > 0.5, truth, 1 - truth)).sum() / 5_000
        for k, calibration in enumerate((None, sizes)):
            expected = expected_performance(
                p, counts, target="positive_class", calibration_counts=calibration
            )
            hits[k] += expected.accuracy.low <= right <= expected.accuracy.high
    # Binomial(200, .95) is below 180 with probability .001.
    assert hits[0] < 80 < 180 <= hits[1]


def test_interval_by_hand_with_the_error_of_the_calibrator() -> None:
    """As counts grow it is that of drawn labels; without calibration rows it is wide."""
    variance = 4 * 0.8 * 0.2 + 4**2 * (10 / 14 * 4 / 14) / 14
    expected = expected_performance([0.8], [4], calibration_counts=[10])
    assert expected.calibration_rows == 10
    assert expected.accuracy.low == pytest.approx(0.8 - 1.959964 * np.sqrt(variance) / 4)
    many = expected_performance([0.8], [4], calibration_counts=[10**9]).accuracy
    assert many.low == pytest.approx(expected_performance([0.8], [4]).accuracy.low, abs=1e-6)
    none = expected_performance([1.0], [4], calibration_counts=[0]).accuracy
    assert none.low == pytest.approx(1 - 1.959964 / 4)


@pytest.mark.parametrize("counts", [[1.0, 2.0], [-1.0], [float("nan")], [float("inf")]])
@pytest.mark.parametrize("name", ["counts", "calibration_counts"])
def test_invalid_counts_are_refused(name: str, counts: list) -> None:
    with pytest.raises(InputError, match=name):
        expected_performance([0.5], **{name: counts})


def test_monitor_has_it_without_labels_and_withholds_it_when_stale() -> None:
    monitor = Monitor([0.6, 0.7, 0.8, 0.9], None, MonitorOptions())
    p = RNG.uniform(0.5, 1, 2_000)
    counts = np.histogram(p, [0, 0.6, 0.7, 0.8, 0.9, 1])[0]
    sums = np.histogram(p, [0, 0.6, 0.7, 0.8, 0.9, 1], weights=p)[0]
    empty = np.zeros(0)
    monitor.add(0, 1, Cohort(counts, empty, empty, empty, traffic_confidence=sums))
    expected = monitor.assess(1).evidence.expected
    assert expected is not None
    assert expected.accuracy.value == pytest.approx(p.mean())
    assert expected.accuracy.low < p.mean() < expected.accuracy.high
    assert (expected.f1, expected.calibration_rows) == (None, None)
    assert "calibrator itself is not in" in expected_text({"expected": asdict(expected)})
    wrong = np.zeros(2_000)
    monitor.add(1, 2, Cohort(counts, p, wrong, wrong, traffic_confidence=sums))
    status = monitor.assess(2)
    assert (status.state, status.evidence.expected) == ("stale", None)


@pytest.mark.parametrize("is_calibration_set", [True, False])
def test_monitor_has_the_error_of_the_calibration_set_in_each_segment(
    is_calibration_set: bool,
) -> None:
    """Not that of a reference of earlier traffic, on which nothing was fitted."""
    options = MonitorOptions(segments=1)
    reference = [10, 20, 30, 20, 20]
    monitor = Monitor(
        [0.6, 0.7, 0.8, 0.9], reference, options, is_calibration_set=is_calibration_set
    )
    empty = np.zeros(0)
    cohort = Cohort(np.full(5, 10), empty, empty, traffic_confidence=[5.5, 6.5, 7.5, 8.5, 9.5])
    monitor.add(0, 1, {"a": cohort})
    status = monitor.assess(1)
    for evidence in (status.evidence, status.segments["a"].evidence):
        assert evidence.expected is not None
        rows = 100 if is_calibration_set else None
        assert evidence.expected.calibration_rows == rows
        text = expected_text({"expected": asdict(evidence.expected)})
        assert ("is not in the intervals" in text) is not is_calibration_set
