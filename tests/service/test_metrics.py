"""Metrics of champions: read from the database, for matured windows only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from recalib.registry import Registry, Transaction
from tests.registry.scenes import a_lease
from tests.service.conftest import Service
from tests.training.watched import WATCHING, Stream, a_champion
from training.monitoring_job import watch

pytestmark = pytest.mark.sqlite_only


def samples(service: Service) -> dict[str, dict[tuple[str, ...], float]]:
    """Return values by metric name and label values; labels are sorted by name."""
    text = service.client.get("/metrics").text
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            values.setdefault(sample.name, {})[labels] = sample.value
    return values


@pytest.mark.slow
def test_metrics_show_the_last_monitoring_result(service: Service) -> None:
    """One gauge for each state; the calibration error is an expression over three counters."""
    model = a_champion(service.registry, replace(WATCHING, segments=("eu",), objective=0.15))
    stream = Stream(service.registry, model)
    stream.send(1_500, ago=4_000, seconds=1_000)
    stream.send(500, ago=20, seconds=10)  # not matured
    before = samples(service)
    assert "recalib_calibration_state" not in before
    # Without an assessment: the start of serving, so that an alert can detect a missing one.
    serves_since = before["recalib_assessed_timestamp_seconds"]["1", "resnet"]
    assert stream.now - 60 < serves_since <= stream.now
    # Prometheus sees no increase in a counter that first appears with a failure.
    assert before["recalib_jobs"]["refit", "failed"] == 0
    watch(service.registry, model)
    metrics = samples(service)
    assert metrics["recalib_assessed_timestamp_seconds"]["1", "resnet"] > stream.now
    states = {labels[2]: value for labels, value in metrics["recalib_calibration_state"].items()}
    assert states == {"fresh": 1, "unverified": 0, "suspect": 0, "stale": 0}
    report = service.client.get("/v1/models/resnet/monitoring").json()
    error = metrics["recalib_calibration_error_ratio"]
    assert error["1", "ece", "resnet", ""] == report["evidence"]["ece"]
    assert error["1", "ece_floor", "resnet", "(rest)"] > 0
    assert metrics["recalib_calibration_objective_ratio"] == {("1", "resnet"): 0.15}
    assert metrics["recalib_window_labels_needed"] == {("1", "resnet"): 200.0}
    assert metrics["recalib_window_labels"] == {("1", "resnet"): report["evidence"]["n"]}
    assert metrics["recalib_silent_traffic_ratio"] == {("1", "resnet"): 0.0}
    assert metrics["recalib_evidence_may_be_selection"]["1", "resnet", ""] == 0
    assert metrics["recalib_registry_up"] == {(): 1}

    totals = {
        name: np.array([metrics[f"recalib_reliability_{name}_total"][str(b), "1", "resnet"]
                        for b in range(15)])
        for name in ("labels", "confidence", "correct", "predictions")
    }  # fmt: skip
    assert totals["labels"].sum() == totals["predictions"].sum() == 1_500
    ece = np.abs(totals["correct"] - totals["confidence"]).sum() / totals["labels"].sum()
    # A window with too few labels has no error (timing dependent); it is at most 1.
    windows = [window["measured"] for window in report["windows"]]
    weighted_sum = sum(
        (1 if window["ece"] is None else window["ece"]) * window["labelled"] for window in windows
    )
    assert 0 < ece < weighted_sum / 1_500  # windows are noisier than their sum


def test_metrics_of_replaced_versions_vanish(service: Service) -> None:
    """Of two classes they include the ROC AUC of P(y = 1)."""
    model = a_champion(service.registry, classes=2)
    Stream(service.registry, model).send(500, ago=1_000)
    watch(service.registry, model)
    before_it = samples(service)
    assert ("1", "resnet") in before_it["recalib_window_labels"]
    assert 0.6 < before_it["recalib_roc_auc"]["1", "resnet"] < 1
    lease = a_lease(service.registry)
    with service.registry.transaction() as tx:
        before = tx.calibrators.get(model, 1)
        data = tx.calibrators.parameters(model, 1)
        tx.calibrators.publish(lease, model, None, before.card, data, "champion", "newer")
        tx.jobs.succeed(lease, {})
    assert not {"recalib_window_labels", "recalib_roc_auc"} & samples(service).keys()


def test_scrape_answers_while_the_registry_hangs(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters of the process are exported, and the registry is reported as down."""
    over = threading.Event()

    @contextmanager
    def hanging(self: Registry) -> Iterator[Transaction]:
        over.wait(60)
        raise AssertionError("the registry was not released")
        yield

    ready.calibrate([[0.0, 1, 2, 3]])
    monkeypatch.setattr("service.health.registry_metrics._PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(Registry, "reading", hanging)
    started = time.monotonic()
    metrics = samples(ready)
    over.set()
    assert time.monotonic() - started < 30
    assert metrics["recalib_registry_up"] == {(): 0}
    assert metrics["recalib_calibrated_rows_total"]["1", "digits"] >= 1
