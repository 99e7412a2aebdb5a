"""Traffic counts: every answered row is counted once by confidence, over all protocols."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.core.card import Card, ConfidenceHistogram, DataSummary, FitSummary
from recalib.core.time_buckets import bucket_start
from recalib.drift.reference_histogram import reference_edges
from recalib.errors import UnavailableError
from recalib.registry import Model, MonitoringSettings, Registry, TrafficCount
from service.monitoring.flush import flush, keep_flushing
from service.serving.traffic import Counts, Traffic
from tests.service.conftest import NPY, Service, npy

MODEL = Model(7, "m", 3, None, 1, "anna", 0.0, MonitoringSettings(segments=("eu", "us")))
EDGES = (0.5, 0.7, 0.9)


def a_card(edges: tuple[float, ...] | None = EDGES) -> Card:
    bins = None if edges is None else ConfidenceHistogram(edges, (1,) * (len(edges) + 1))
    return Card(
        map="identity",
        objective="nll",
        classes=3,
        library="0",
        created_at="2026-01-01",
        data=DataSummary(1),
        fit=FitSummary(0.0, 0, True, 0.0),
        confidences=bins,
    )


def rows(*confidences: float) -> np.ndarray:
    array = np.array(confidences, np.float32)
    return np.stack([array, (1 - array) / 2, (1 - array) / 2], axis=1)


def by_bin(counted: list[TrafficCount]) -> dict[tuple[int, int], int]:
    """Return predictions by segment and bin, summed over buckets."""
    totals: Counter[tuple[int, int]] = Counter()
    for count in counted:
        totals[count.segment, count.bin] += count.predictions
    return dict(totals)


def test_predictions_are_counted_by_segment_and_confidence() -> None:
    """A value on an edge is in the bin above; small and large batches count alike."""
    before, traffic = time.time(), Traffic()
    stream = traffic.stream(MODEL, 2, a_card())
    stream.add(rows(0.4, 0.5, 0.6))
    stream.add(rows(0.95), stream.segment_of("us"))
    stream.add(np.tile(rows(0.8), (1_000, 1)), stream.segment_of("us"))
    stream.add(rows(0.8), stream.segment_of("mars"))
    counted = traffic.take().traffic
    assert by_bin(counted) == {(0, 0): 1, (0, 1): 2, (2, 3): 1, (2, 2): 1_000, (0, 2): 1}
    assert {(count.model_id, count.version) for count in counted} == {(7, 2)}
    assert {count.started_at % 300 for count in counted} == {0}
    assert before - 300 < counted[0].started_at <= time.time()
    sums = {(count.segment, count.bin): count.confidence_sum for count in counted}
    assert sums == pytest.approx({(0, 0): 0.4, (0, 1): 1.1, (2, 3): 0.95, (2, 2): 800, (0, 2): 0.8})
    assert all(count.confidence_count == count.predictions for count in counted)
    assert traffic.take().traffic == []
    stream.add(rows(0.1))
    assert by_bin(traffic.take().traffic) == {(0, 0): 1}


@given(st.floats(0, 4e9), st.integers(1, 3_600), st.integers(2, 10**6))
def test_a_bucket_is_in_the_cohort_of_its_predictions(
    seconds: float, bucket: int, halves: int
) -> None:
    cohort = halves / 2
    start = bucket_start(seconds, bucket, cohort)
    assert seconds - start <= bucket
    assert math.floor(start / cohort) == math.floor(seconds / cohort)


@pytest.mark.parametrize("classes", [(), ("0",)])
@pytest.mark.parametrize("rows", [2, 1_000])
def test_two_classes_are_counted_by_the_positive_class(classes: tuple[str, ...], rows: int) -> None:
    """In small and large batches, with and without watched classes."""
    card = msgspec.structs.replace(
        a_card(), classes=2, confidences=ConfidenceHistogram((0.25,), (1, 1), "positive_class")
    )
    traffic = Traffic()
    monitoring = MonitoringSettings(classes=classes)
    stream = traffic.stream(Model(7, "m", 2, None, 1, "anna", 0.0, monitoring), 2, card)
    p = np.tile(np.array([0.125, 0.75], np.float32), rows // 2)
    stream.add(np.stack([1 - p, p], axis=1))
    counts = traffic.take()
    assert by_bin(counts.traffic) == {(0, 0): rows // 2, (0, 1): rows // 2}
    sums = [count.confidence_sum for count in sorted(counts.traffic, key=lambda c: c.bin)]
    assert sums == [0.125 * rows / 2, 0.75 * rows / 2]
    of_class = [(c.predicted, c.predictions, c.max_error_sum) for c in counts.classes]
    assert of_class == ([(0, rows // 2, 0.875 * rows / 2)] if classes else [])


def test_calibrators_without_bins_use_equal_width_bins() -> None:
    assert reference_edges(a_card(None)) == pytest.approx(np.arange(1, 15) / 15)


def test_counts_of_evicted_calibrators_are_kept() -> None:
    """The cache may evict a calibrator before the next flush."""
    traffic = Traffic()
    traffic.stream(MODEL, 1, a_card()).add(rows(0.4))
    assert by_bin(traffic.take().traffic) == {(0, 0): 1}


@pytest.mark.slow
def test_concurrent_counts_are_not_lost() -> None:
    """Each of 4 x 5,000 answers is in one result of `take`, also beyond the buffer limit."""
    traffic = Traffic()
    stream, over = traffic.stream(MODEL, 1, a_card()), threading.Event()
    counts: list[TrafficCount] = []

    def take() -> None:
        while not over.is_set():
            counts.extend(traffic.take().traffic)

    def answer(segment: int) -> None:
        for _ in range(5_000):
            stream.add(rows(0.6), segment)

    with ThreadPoolExecutor(5) as threads:
        taking = threads.submit(take)
        for future in [threads.submit(answer, segment) for segment in (0, 0, 1, 2)]:
            future.result()
        over.set()
        taking.result()
    counts.extend(traffic.take().traffic)
    assert by_bin(counts) == {(0, 1): 10_000, (1, 1): 5_000, (2, 1): 5_000}


def test_declared_segments_are_used() -> None:
    traffic = Traffic()
    stream = traffic.stream(MODEL, 1, a_card())
    assert [stream.segment_of(name) for name in ("eu", "us", "asia", "")] == [1, 2, 0, 0]
    traffic.declare({7: MonitoringSettings(segments=("eu", "us", "asia")), 8: MonitoringSettings()})
    assert stream.segment_of("asia") == 3
    assert traffic.stream(MODEL, 2, a_card()).segment_of("asia") == 3


WATCHED = replace(MODEL, monitoring=MonitoringSettings(classes=("0", "2")))


@pytest.mark.parametrize("repeats", [1, 1_000])
def test_predictions_of_watched_classes_are_counted(repeats: int) -> None:
    """With their largest possible errors, in small and in large responses."""
    traffic = Traffic()
    stream = traffic.stream(WATCHED, 2, a_card())
    batch = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.1, 0.8, 0.1]])
    stream.add(np.tile(batch, (repeats, 1)))
    counts = traffic.take()
    assert [(count.predicted, count.predictions) for count in counts.classes] == [
        (0, repeats),
        (2, 2 * repeats),
    ]
    sums = [count.max_error_sum for count in counts.classes]
    assert sums == pytest.approx([0.8 * repeats, 1.3 * repeats])
    assert by_bin(counts.traffic) == {(0, 0): repeats, (0, 2): 3 * repeats}
    assert traffic.give_back(counts) == 0
    assert traffic.give_back(counts) == 0
    assert [count.predictions for count in traffic.take().classes] == [2 * repeats, 4 * repeats]


def test_classes_are_counted_from_their_declaration_on() -> None:
    """A buffer may hold rows of before; without watched classes nothing is counted by class."""
    traffic = Traffic()
    stream = traffic.stream(MODEL, 1, a_card())
    stream.add(np.tile(rows(0.8), (1_000, 1)))
    traffic.declare({MODEL.id: WATCHED.monitoring})
    stream.add(np.tile(rows(0.8), (1_000, 1)))
    counts = traffic.take()
    assert sum(count.predictions for count in counts.traffic) == 2_000
    assert [count.predictions for count in counts.classes] == [1_000]
    stream.add(rows(0.8))
    traffic.declare({MODEL.id: MODEL.monitoring})
    counts = traffic.take()
    assert len(counts.traffic) == 1
    assert counts.classes == []


class Away(Registry):
    def transaction(self):  # type: ignore[no-untyped-def]
        raise UnavailableError("the database is away")


def test_counts_wait_for_an_unavailable_registry(registry: Registry) -> None:
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 3, "anna")
    traffic = Traffic()
    stream = traffic.stream(model, 1, a_card())
    away = Away("sqlite:////nowhere/at/all.db", "memory://")
    for _ in range(3):
        stream.add(rows(0.4, 0.6))
        assert flush(away, traffic) is False
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", MonitoringSettings(segments=("eu",)))
    stream.add(rows(0.4))
    assert flush(registry, traffic) is True
    assert stream.segment_of("eu") == 1
    assert flush(registry, traffic) is True
    with registry.reading() as tx:
        counts = tx.traffic.between(model, 1, 0, 1e11)
    assert by_bin(counts) == {(0, 0): 4, (0, 1): 3}
    assert [count.confidence_count for count in counts] == [4, 3]
    assert [count.confidence_sum for count in counts] == pytest.approx([1.6, 1.8])


@pytest.mark.sqlite_only
def test_last_flush_follows_the_flush_in_progress(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions that are counted after its start are written when the process stops."""
    traffic = Traffic()
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 3, "anna")
    stream = traffic.stream(model, 1, a_card())
    take, has_taken, may_end = traffic.take, threading.Event(), threading.Event()

    def take_slowly() -> Counts:
        counts = take()
        has_taken.set()
        assert may_end.wait(60)
        return counts

    monkeypatch.setattr(traffic, "take", take_slowly)
    state: Any = SimpleNamespace(
        settings=SimpleNamespace(flush_seconds=0.01, capture_seconds=60.0),
        registry=registry,
        calibrators=SimpleNamespace(traffic=traffic),
    )

    async def stop_during_a_flush() -> None:
        stream.add(rows(0.4))
        task = asyncio.create_task(keep_flushing(state))
        await asyncio.to_thread(has_taken.wait, 60)
        stream.add(rows(0.6))
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait([task])

    asyncio.run(stop_during_a_flush())
    with registry.reading() as tx:
        assert by_bin(tx.traffic.between(model, 1, 0, 1e11)) == {(0, 0): 1, (0, 1): 1}


def test_every_protocol_is_counted(ready: Service) -> None:
    """JSON and .npy, with and without ids, and the Open Inference Protocol."""
    logits = np.random.default_rng(0).normal(0, 3, (40, 4)).astype(np.float32)
    answered = [ready.calibrate(logits).json()["probabilities"]]
    path = "/v1/models/digits/calibrate"
    for query in ({}, {"ids": "0.5", "calibrator": "1"}):
        accept = NPY | {"Accept": "application/json"}
        answer = ready.client.post(path, content=npy(logits), params=query, headers=accept)
        answered.append(answer.json()["probabilities"])
    tensor = {"name": "logits", "datatype": "FP32", "shape": [40, 4], "data": logits.tolist()}
    assert ready.client.post("/v2/models/digits/infer", json={"inputs": [tensor]}).is_success
    answered.append(answered[0])
    refused = ready.calibrate([[1.0, 2.0]])
    assert refused.status_code == 422
    state = ready.client.app.state.recalib
    assert flush(ready.registry, state.calibrators.traffic)
    with ready.registry.reading() as tx:
        model = tx.models.get("digits")
        card = tx.calibrators.get(model, 1).card
        counts = tx.traffic.between(model, 1, 0, 1e11)
    bins = np.array(card["confidences"]["edges"])
    places = np.searchsorted(bins, np.max(answered, axis=2).ravel(), side="right")
    expected = {(0, bin): n for bin, n in enumerate(np.bincount(places)) if n}
    assert by_bin(counts) == expected
    assert sum(expected.values()) == 4 * 40


def test_served_predictions_are_counted_by_watched_class(ready: Service) -> None:
    """From the next write of counts on: then the process learns the settings."""
    traffic = ready.client.app.state.recalib.calibrators.traffic
    path = "/v1/models/digits/monitoring/settings"
    ready.calibrate(np.zeros((5, 4)))
    assert ready.client.put(path, json={"classes": ["0", "3"]}).is_success
    assert flush(ready.registry, traffic)
    logits = np.random.default_rng(0).normal(0, 3, (40, 4)).astype(np.float32)
    probabilities = np.array(ready.calibrate(logits).json()["probabilities"])
    assert flush(ready.registry, traffic)
    with ready.registry.reading() as tx:
        counts = tx.class_traffic.between(tx.models.get("digits"), 1, 0, 1e11)
    predicted, confidences = probabilities.argmax(axis=1), probabilities.max(axis=1)
    errors = np.bincount(predicted, np.maximum(confidences, 1 - confidences))
    assert {count.predicted: count.predictions for count in counts} == {
        k: np.count_nonzero(predicted == k) for k in (0, 3)
    }
    sums = [count.max_error_sum for count in counts]
    assert sums == pytest.approx([errors[0], errors[3]], rel=1e-5)


def test_counts_are_written_at_shutdown(ready: Service) -> None:
    """A graceful shutdown loses no counts."""
    ready.calibrate(np.zeros((5, 4)))
    ready.client.__exit__(None, None, None)
    with ready.registry.reading() as tx:
        counts = tx.traffic.between(tx.models.get("digits"), 1, 0, 1e11)
    assert sum(item.predictions for item in counts) == 5
    ready.client.__enter__()
