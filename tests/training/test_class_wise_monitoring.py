"""Class-wise monitoring in the job: rows, alarms, storage and a change of classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.registry import Model, MonitorRow, Registry
from tests.drift.test_class_monitor import labels_of, swap_two
from tests.training.watched import CAPTURING, WATCHING, Stream, a_champion, serve
from training.monitoring_job import watch
from training.sampled_rows import read_class_rows

pytestmark = pytest.mark.sqlite_only

_ALL = ("all",)


def monitor_row(registry: Registry, model: Model) -> MonitorRow:
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1, with_state=True)
    assert row is not None
    return row


def swapped(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    return labels_of(np.random.default_rng(0), swap_two(probabilities.astype(np.float64)))


def opposite(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return labels with class 0 right less often where it is predicted, and class 1 more often."""
    truth, top = probabilities.astype(np.float64), probabilities.argmax(axis=1)
    for k, gap in ((0, -0.2), (1, 0.2)):
        truth[top == k, k] = np.clip(truth[top == k, k] + gap, 0.01, 0.99)
    truth[:, 2] += 1 - truth.sum(axis=1)
    return labels_of(np.random.default_rng(0), np.clip(truth, 0, 1))


@pytest.mark.slow
@pytest.mark.both_databases
def test_swap_of_two_classes_makes_a_version_stale(registry: Registry) -> None:
    """It shows in sampled logits only; the reason names a class, and events have the evidence."""
    model = a_champion(registry, replace(CAPTURING, classes=_ALL))
    serve(registry, model, ago=4_000, temperature=3.0, rows=4_000, seconds=2_000, label=swapped)
    assert watch(registry, model)
    row = monitor_row(registry, model)
    assert row.status["state"] == "stale"
    assert row.status["evidence"]["rejected_at"] is None
    assert "class-wise test" in row.status["reason"]
    classes = row.status["classes"]
    assert classes["labels"] == 4_000
    assert {gap["class_index"] for gap in classes["worst"] if gap["rejected"]} <= {0, 1}
    assert row.options["classes"] == ["all"]
    with registry.reading() as tx:
        (event, *_) = tx.monitors.events(model, 1)
        without_state = tx.monitors.find(model, 1)
    assert event.evidence["classes"]["rejected"]
    assert without_state == replace(row, state={})
    assert watch(registry, model) == 0


@pytest.mark.slow
def test_top_label_hides_the_swap_without_class_wise_monitoring(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=4_000, temperature=3.0, rows=4_000, seconds=2_000, label=swapped)
    watch(registry, model)
    status = monitor_row(registry, model).status
    assert status["state"] in ("fresh", "unverified")
    assert status["classes"] is None


@pytest.mark.slow
def test_errors_of_predicted_classes_show_without_logits(registry: Registry) -> None:
    """An id has the probability of the predicted class: enough if its errors are its own."""
    model = a_champion(registry, replace(WATCHING, classes=("0", "1")))
    options: dict[str, Any] = {"rows": 4_000, "seconds": 2_000, "save_logits": False}
    serve(registry, model, ago=4_000, temperature=3.0, label=opposite, **options)
    watch(registry, model)
    status = monitor_row(registry, model).status
    assert status["state"] == "stale"
    assert status["classes"]["rejected"]
    assert status["classes"]["labels"] < 3_000


@pytest.mark.slow
def test_class_whose_labels_stop_is_named(registry: Registry) -> None:
    """The state was fresh; one window later the interval allows any error of the class."""
    settings = replace(WATCHING, objective=0.15, window_labels=600, classes=("1", "2"))
    model = a_champion(registry, settings)
    stream = Stream(registry, model)
    for predicted in (1, 2):
        stream.send(800, ago=4_000, seconds=1_000, predicted=predicted)
    watch(registry, model)
    before = monitor_row(registry, model).status
    assert before["state"] == "fresh"
    assert [window["silent"] for window in before["classes"]["windows"]] == [False, False]
    stream.send(800, ago=2_900, seconds=1_000, predicted=1)
    stream.send(800, ago=2_900, seconds=1_000, predicted=2, labelled=0.0)
    watch(registry, model)
    status = monitor_row(registry, model).status
    assert status["state"] == "unverified"
    assert "no labels for predictions of class 2 (50% of traffic)" in status["reason"]
    windows = status["classes"]["windows"]
    assert [(window["class_index"], window["silent"]) for window in windows] == [
        (1, False),
        (2, True),
    ]
    assert windows[0]["predictions"] == windows[0]["labelled"]
    assert windows[1]["labelled"] == 0


def test_each_row_counts_once_for_each_class(registry: Registry) -> None:
    """With logits for all classes, and without for the one that was predicted."""
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=3_000, temperature=3.0, rows=300, seed=1)
    serve(registry, model, ago=3_000, temperature=3.0, rows=200, seed=2, save_logits=False)
    with registry.reading() as tx:
        now = tx.clock()
        labels = tx.labels.columns(model, 1, 0, now)
    rows = read_class_rows(registry, model, 1, labels, 0, now, (0, 1, 2, 3))
    assert rows.probabilities.nnz == 300 * 4 + 200
    sums = np.bincount(
        np.searchsorted(np.unique(rows.times), rows.times), rows.probabilities.sum(1)
    )
    assert np.count_nonzero(np.abs(sums - 1) < 1e-5) >= 300
    assert np.all(np.diff(rows.times) >= 0)
    assert len(read_class_rows(registry, model, 1, labels, now - 10, now, (3,))) < 500


def test_change_of_classes_starts_a_new_test(registry: Registry) -> None:
    model = a_champion(registry, replace(CAPTURING, classes=("0",)))
    serve(registry, model, ago=3_000, temperature=3.0, rows=500, seconds=100)
    watch(registry, model)
    assert monitor_row(registry, model).number == 1
    with registry.transaction() as tx:
        model = tx.models.set_monitoring(model.name, replace(CAPTURING, classes=("1", "2")))
    serve(registry, model, ago=2_000, temperature=3.0, rows=500, seconds=100, seed=5)
    watch(registry, model)
    row = monitor_row(registry, model)
    assert row.number == 2
    assert row.status["classes"]["watched"] == 2
    assert row.status["classes"]["labels"] <= 500
