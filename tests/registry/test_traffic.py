"""Counts of predictions: summed over processes, and merged with age."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from recalib.registry import ClassTrafficCount, Model, Registry, TrafficCount, merge_counts
from tests.registry.scenes import a_model


def counts(registry: Registry, model: Model, version: int = 1) -> list[TrafficCount]:
    with registry.reading() as tx:
        return tx.traffic.between(model, version, 0, 1e11)


def a_count(
    model: Model, start: int, predictions: int, *, bin: int = 0, segment: int = 0
) -> TrafficCount:
    return TrafficCount(model.id, 1, start, segment, bin, predictions)


def test_counts_add_up(registry: Registry) -> None:
    """By model, version, bucket, segment and bin, and no other way."""
    model, other = a_model(registry), a_model(registry, "other")
    first = [a_count(model, 600, 2), a_count(model, 300, 5), a_count(model, 300, 1, bin=4)]
    with registry.transaction() as tx:
        tx.traffic.add(first)
        tx.traffic.add([])
    with registry.transaction() as tx:
        tx.traffic.add([a_count(model, 300, 10**12), a_count(model, 300, 3, segment=2)])
        tx.traffic.add([a_count(other, 300, 9), TrafficCount(model.id, 2, 300, 0, 0, 4)])
    assert counts(registry, model) == [
        a_count(model, 300, 5 + 10**12),
        a_count(model, 300, 1, bin=4),
        a_count(model, 300, 3, segment=2),
        a_count(model, 600, 2),
    ]
    assert counts(registry, model, 2) == [TrafficCount(model.id, 2, 300, 0, 0, 4)]
    with registry.reading() as tx:
        assert tx.traffic.between(model, 1, 301, 600) == []
        assert len(tx.traffic.between(model, 1, 300, 600)) == 3
        assert [tx.traffic.first(model, 1, since) for since in (0, 301, 601)] == [300, 600, None]


def test_sums_of_confidences_add_up(registry: Registry) -> None:
    """Also when buckets are merged; a server of an earlier version counts without them."""
    model = a_model(registry)
    first = TrafficCount(model.id, 1, 300, 0, 2, 4, 4, 3.5)
    later = first._replace(started_at=600, predictions=2, confidence_count=2, confidence_sum=1.25)
    with registry.transaction() as tx:
        tx.traffic.add([first, later])
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE traffic SET predictions = predictions + 1"))
        tx.traffic.add([first])
    assert counts(registry, model) == [
        first._replace(predictions=9, confidence_count=8, confidence_sum=7.0),
        later._replace(predictions=3),
    ]
    with registry.transaction() as tx:
        assert tx.traffic.compact(model, {None: 7_200.0}, 3_600) == 2
    assert counts(registry, model) == [TrafficCount(model.id, 1, 0, 0, 2, 12, 10, 8.25)]


def test_counts_with_the_same_key_are_merged() -> None:
    count = TrafficCount(1, 1, 300, 0, 2, 4, 4, 3.5)
    other = count._replace(bin=3)
    assert merge_counts([count, other, count]) == [
        count._replace(predictions=8, confidence_count=8, confidence_sum=7.0),
        other,
    ]


def test_counts_merged_in_parts_equal_those_merged_at_once() -> None:
    """For any partition into parts; sums of confidences to rounding."""
    rng = np.random.default_rng(0)
    rows = [
        TrafficCount(1, 1, 300, segment, bin, n, n, p)
        for segment, bin, n, p in zip(
            *rng.integers(0, 3, (2, 60)).tolist(),
            rng.integers(0, 10**12, 60).tolist(),
            rng.uniform(0, 1e6, 60).tolist(),
            strict=True,
        )
    ]
    expected = sorted(merge_counts(rows))
    for parts in (1, 2, 7, 60):
        owners = rng.integers(0, parts, len(rows))
        merged = [
            count
            for part in range(parts)
            for count in merge_counts(
                row for row, owner in zip(rows, owners, strict=True) if owner == part
            )
        ]
        result = sorted(merge_counts(merged))
        assert [row[:-1] for row in result] == [row[:-1] for row in expected]
        sums = [row.confidence_sum for row in expected]
        assert [row.confidence_sum for row in result] == pytest.approx(sums, rel=1e-12)


def test_counts_of_predicted_classes_add_up(registry: Registry) -> None:
    """Also when buckets are merged, and apart from those of bins."""
    model = a_model(registry)
    first = ClassTrafficCount(model.id, 1, 300, 7, 4, 3.5)
    other = first._replace(predicted=8)
    assert merge_counts([first, other, first]) == [
        first._replace(predictions=8, max_error_sum=7.0),
        other,
    ]
    for count in (first, other, first, first._replace(started_at=600)):
        with registry.transaction() as tx:
            tx.class_traffic.add([count])
    with registry.transaction() as tx:
        stored = tx.class_traffic.between(model, 1, 0, 1e11)
        assert stored[0] == first._replace(predictions=8, max_error_sum=7.0)
        assert tx.class_traffic.compact(model, {None: 7_200.0}, 3_600) == 3
        assert tx.class_traffic.between(model, 1, 0, 300) == [
            first._replace(started_at=0, predictions=12, max_error_sum=10.5),
            other._replace(started_at=0),
        ]
        assert tx.traffic.between(model, 1, 0, 1e11) == []
        assert tx.class_traffic.delete(model, {None: 1.0}) == 2


_ADDING = """
import sys
from recalib.registry import TrafficCount, Registry
registry = Registry(sys.argv[1], 'memory://')
with registry.reading() as tx:
    model = tx.models.get('resnet')
print("ready", flush=True)
sys.stdin.readline()
for turn in range(30):
    rows = [TrafficCount(model.id, 1, 300 * (n % 5), 0, n % 7, 1) for n in range(35)]
    with registry.transaction() as tx:
        tx.traffic.add(rows[::-1] if sys.argv[2] == "backwards" else rows)
"""


@pytest.mark.slow
def test_concurrent_counts_are_complete(registry: Registry, database_url: str) -> None:
    """The same rows in opposite orders: neither overwrites, and neither waits in a circle."""
    model = a_model(registry)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _ADDING, database_url, order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[2],
        )
        for order in ("forwards", "backwards", "forwards")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        process.communicate(b"go\n", timeout=60)
        assert process.returncode == 0
    rows = counts(registry, model)
    assert len(rows) == 35
    assert {row.predictions for row in rows} == {90}


def test_old_buckets_are_merged_and_deleted(registry: Registry) -> None:
    """Counts stay equal, late counts are merged later, and the unfinished hour is not merged."""
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.traffic.add(
            [a_count(model, start, 1, bin=b) for start in range(0, 9000, 300) for b in (0, 2)]
        )
        assert tx.traffic.compact(model, {None: 7_600.0}, 3_600) == 2 * (24 - 2)
    hours = counts(registry, model)
    assert [row for row in hours if row.bin == 2] == [
        a_count(model, 0, 12, bin=2),
        a_count(model, 3_600, 12, bin=2),
        *(a_count(model, start, 1, bin=2) for start in range(7_200, 9_000, 300)),
    ]
    with registry.transaction() as tx:
        tx.traffic.add([a_count(model, 300, 4)])
        assert tx.traffic.compact(model, {None: 7_600.0}, 3_600) == 1
        assert tx.traffic.compact(model, {None: 7_600.0}, 3_600) == 0
    assert counts(registry, model)[0] == a_count(model, 0, 16)
    with registry.transaction() as tx:
        assert tx.traffic.delete(model, {None: 7_200.0}) == 4
    assert counts(registry, model)[0].started_at == 7_200


@pytest.mark.both_databases
def test_age_of_a_version_may_differ(registry: Registry) -> None:
    """Old traffic of the champion stays until it has been read."""
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.traffic.add([TrafficCount(model.id, v, 300, 0, 2, 1, 1, 0.5) for v in (1, 2, 3)])
        assert tx.traffic.compact(model, {None: 7_200.0, 2: 0.0}, 3_600) == 2
        assert [tx.traffic.first(model, v, 0) for v in (1, 2, 3)] == [0, 300, 0]
        assert tx.traffic.delete(model, {None: 7_200.0, 2: 0.0}) == 2
        assert [tx.traffic.first(model, v, 0) for v in (1, 2, 3)] == [None, 300, None]
