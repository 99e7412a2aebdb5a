"""Calibration sums: values, merging, and the input that they reject."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.drift import CalibrationSums
from recalib.errors import InputError

EDGES = [0.3, 0.7, 1.0]
ROWS = st.lists(
    st.tuples(st.floats(0, 1), st.booleans(), st.floats(-5, 1e6)), min_size=0, max_size=30
)


def sums_of(*parts: list[tuple[float, bool, float]]) -> CalibrationSums:
    sums = CalibrationSums.empty(EDGES)
    for rows in parts:
        sums.add_traffic([p for p, _, _ in rows])
        sums.add_labels(*map(list, zip(*rows, strict=True)) if rows else ([], []))
    return sums


def same(first: CalibrationSums, second: CalibrationSums) -> bool:
    return all(
        np.allclose(left, right, rtol=1e-12, atol=1e-12)
        for left, right in zip(first.to_dict().values(), second.to_dict().values(), strict=True)
    )


@given(rows=ROWS)
def test_sums_equal_a_loop(rows):
    slow = CalibrationSums.empty(EDGES)
    for p, y, delay in rows:
        b = sum(p >= edge for edge in EDGES)
        slow.traffic[b] += 1
        slow.traffic_confidence_count[b] += 1
        slow.traffic_confidence[b] += p
        slow.labelled[b] += 1
        slow.weight[b] += 1
        slow.correct[b] += y
        slow.confidence[b] += p
        slow.confidence_squared[b] += p * p
        slow.confidence_correct[b] += p * y
        slow.delay[b] += max(delay, 0)
    assert same(sums_of(rows), slow)


@given(rows=ROWS, more=ROWS)
def test_merged_sums_equal_the_sums_of_all_rows(rows, more):
    first, second = sums_of(rows), sums_of(more)
    assert same(first.merge(second), sums_of(rows + more))
    assert same(first, sums_of(rows))
    assert same(sums_of(rows, more), sums_of(rows + more))
    assert same(second, sums_of(more))


def test_a_confidence_on_an_edge_is_in_the_bin_above():
    sums = CalibrationSums.empty(EDGES)
    sums.add_traffic([0.0, 0.3, 0.7, 1.0])
    assert sums.traffic.tolist() == [1, 1, 1, 1]
    sums.add_counts(np.array([0, 2, 0, 1]))
    assert sums.traffic.tolist() == [1, 3, 1, 2]
    single_bin = CalibrationSums.empty([])
    single_bin.add_traffic([0.0, 1.0])
    assert single_bin.traffic.tolist() == [2]


def test_json_is_exact():
    sums = sums_of([(0.1, True, 3.0), (1 / 3, False, 0.1), (0.9, True, 0.0)])
    restored = CalibrationSums.from_dict(json.loads(json.dumps(sums.to_dict())))
    assert restored.to_dict() == sums.to_dict()
    assert restored.labelled.dtype == np.int64


def test_sums_of_earlier_versions_have_no_confidences_of_traffic():
    sums = sums_of([(0.1, True, 3.0), (0.9, True, 0.0)])
    saved = sums.to_dict()
    del saved["traffic_confidence"], saved["traffic_confidence_count"], saved["weight"]
    restored = CalibrationSums.from_dict(saved)
    assert restored.weight.tolist() == sums.labelled.tolist()
    assert restored.traffic.tolist() == sums.traffic.tolist()
    assert not restored.traffic_confidence_count.any()
    restored = restored.merge(sums)
    assert restored.traffic_confidence_count.tolist() == sums.traffic.tolist()
    assert restored.traffic.tolist() == (2 * sums.traffic).tolist()


def test_traffic_is_separated_from_labels():
    sums = sums_of([(0.1, True, 3.0), (0.4, False, 0.1), (0.9, True, 0.0)])
    low = np.array([True, False, False, False])
    part = sums.traffic_only(low)
    assert part.traffic.tolist() == [1, 0, 0, 0]
    assert part.traffic_confidence.tolist() == [0.1, 0, 0, 0]
    assert not part.labelled.any()
    rest = sums.without_traffic(part)
    assert rest.traffic.tolist() == [0, 1, 1, 0]
    assert rest.labelled.tolist() == sums.labelled.tolist()
    assert rest.merge(part) == sums


@pytest.mark.parametrize("edges", [[0.5, 0.5], [0.7, 0.3], [0.0, 0.5], [1.1], [float("nan")], [[]]])
def test_bad_edges_are_rejected(edges):
    with pytest.raises(InputError) as excinfo:
        CalibrationSums.empty(edges)
    assert excinfo.value.field == "edges"


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        (([0.5, 1.5], [0, 1]), "confidences"),
        (([0.5, float("nan")], [0, 1]), "confidences"),
        (([0.5], [2]), "correct"),
        (([0.5], [1, 0]), "correct"),
        (([0.5], [1], [float("inf")]), "delays"),
        (([0.5], [1], [1.0, 2.0]), "delays"),
    ],
)
def test_bad_rows_are_rejected_and_change_nothing(rows, field):
    sums = CalibrationSums.empty(EDGES)
    with pytest.raises(InputError) as excinfo:
        sums.add_labels(*rows)
    assert excinfo.value.field == field
    assert same(sums, CalibrationSums.empty(EDGES))


def test_different_bins_and_bad_counts_are_rejected():
    with pytest.raises(InputError):
        CalibrationSums.empty(EDGES).merge(CalibrationSums.empty([0.5]))
    for counts in ([1, 2], [1, 2, 3, -1], [0.5, 1.0, 1.0, 1.0]):
        with pytest.raises(InputError):
            CalibrationSums.empty(EDGES).add_counts(np.array(counts))
    saved = CalibrationSums.empty(EDGES).to_dict()
    with pytest.raises(InputError):
        CalibrationSums.from_dict({**saved, "traffic": [1, 2]})
