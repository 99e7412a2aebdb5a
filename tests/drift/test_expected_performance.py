"""Accuracy, F1 and AUC without labels: exact, covered, withheld."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from recalib.drift import Cohort, Monitor, MonitorOptions, expected_performance
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
    assert expected.f1 is None
    wrong = np.zeros(2_000)
    monitor.add(1, 2, Cohort(counts, p, wrong, wrong, traffic_confidence=sums))
    status = monitor.assess(2)
    assert (status.state, status.evidence.expected) == ("stale", None)
