"""The monitoring job: it reads each matured cohort exactly once and stores the results."""

from __future__ import annotations

import copy
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from recalib.drift import CalibrationSums
from recalib.errors import ConflictError
from recalib.registry import Model, MonitorRow, Registry, tables
from recalib.registry.job_kinds import MONITOR
from tests.training.watched import LENGTH, MATURITY, WATCHING, Stream, a_champion
from training import live_cohorts
from training import monitoring_job as monitoring
from training.monitoring_job import run_monitor, tidy, watch
from training.worker import Worker


def known(registry: Registry, model: Model, version: int = 1) -> MonitorRow:
    with registry.reading() as tx:
        row = tx.monitors.find(model, version)
    assert row is not None
    return row


def kinds(registry: Registry, model: Model) -> list[str]:
    with registry.reading() as tx:
        return [event.kind for event in reversed(tx.monitors.events(model, 100))]


def caught_up(registry: Registry, model: Model) -> int:
    cohort_count = watch(registry, model)
    assert cohort_count is not None
    return cohort_count


@pytest.mark.sqlite_only
def test_model_without_champion_is_not_monitored(registry: Registry) -> None:
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 4, "anna")
    assert watch(registry, model) is None


def test_matured_cohorts_are_read_exactly_once(registry: Registry) -> None:
    """A cohort closes when its last prediction has matured; later labels are late."""
    model = a_champion(registry)
    stream = Stream(registry, model)
    assert caught_up(registry, model) == 0
    assert known(registry, model).status["state"] == "unverified"
    stream.send(300, ago=1_000, seconds=600)
    stream.send(50, ago=20, seconds=10)
    cohort_count = caught_up(registry, model)
    assert 10 <= cohort_count <= 11
    row = known(registry, model)
    assert row.status["evidence"]["labels"] == 300
    assert row.status["evidence"]["n"] == row.status["evidence"]["traffic"] == 300
    assert row.through % LENGTH == 0
    assert row.through <= stream.now - MATURITY + 60
    assert caught_up(registry, model) == 0
    assert known(registry, model).status["evidence"]["labels"] == 300
    stream.send(40, ago=1_000, seconds=600)
    assert caught_up(registry, model) == 0
    with registry.reading() as tx:
        cohorts = tx.monitors.cohorts(model, 1, 0, 100)
    assert len(cohorts) == cohort_count
    sums = CalibrationSums.empty(stream.edges)
    for cohort in cohorts:
        sums = sums.merge(CalibrationSums.from_dict(cohort.sums))
    assert sums.to_dict() == row.totals
    assert (sums.traffic.sum(), sums.labelled.sum()) == (300, 300)


@pytest.mark.sqlite_only
def test_labels_that_come_too_late_do_not_count(registry: Registry) -> None:
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(100, ago=600)
    stream.send(30, ago=400, delay=MATURITY + 1)
    caught_up(registry, model)
    row = known(registry, model)
    assert (row.late, row.status["evidence"]["labels"]) == (30, 100)
    assert row.status["evidence"]["traffic"] == 130


@pytest.mark.sqlite_only
def test_calibrated_labels_are_fresh_and_drift_is_stale(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change of state is in the audit trail and in the log, with the evidence."""
    caplog.set_level(logging.INFO)
    model = a_champion(registry, replace(WATCHING, objective=0.15))
    stream = Stream(registry, model)
    stream.send(1_500, ago=4_000, seconds=1_000)
    caught_up(registry, model)
    assert known(registry, model).status["state"] == "fresh"
    stream.send(3_000, ago=2_000, seconds=1_000, slope=0.4)
    caught_up(registry, model)
    status = known(registry, model).status
    assert status["state"] == "stale"
    assert status["evidence"]["rejected_at"] > 1_500
    assert stream.now - 2_100 < status["onset"] < stream.now - 1_500
    with registry.reading() as tx:
        events = tx.monitors.events(model, 100)
    assert events[0].kind == "stale"
    assert events[0].evidence["rejected_at"] == status["evidence"]["rejected_at"]
    assert events[0].reason == status["reason"]
    records = [
        record for record in caplog.records if getattr(record, "action", "") == "calibration_state"
    ]
    assert [record.state for record in records] == kinds(registry, model)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_segments_are_monitored_separately(registry: Registry) -> None:
    """Drift in one segment is detected; traffic without a segment is named `(rest)`."""
    model = a_champion(registry, replace(WATCHING, segments=("eu", "us")))
    stream = Stream(registry, model)
    for segment, slope, rows in ((0, 1.0, 900), (1, 1.0, 900), (2, 0.2, 900)):
        stream.send(rows, ago=2_000, seconds=1_000, slope=slope, segment=segment)
    caught_up(registry, model)
    status = known(registry, model).status
    assert set(status["segments"]) == {"(rest)", "eu", "us"}
    assert status["segments"]["us"]["state"] == "stale"
    assert status["segments"]["eu"]["state"] != "stale"
    assert status["state"] == "stale"
    with registry.reading() as tx:
        assert {cohort.segment for cohort in tx.monitors.cohorts(model, 1, 0, 100)} == {0, 1, 2}


@pytest.mark.slow
def test_failure_before_the_commit_is_repeated_without_duplicates(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cohort, state and event are stored in one transaction, as after kill -9."""
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(2_000, ago=2_000, seconds=1_000, slope=0.3)

    def broken(*_: Any) -> None:
        raise KeyError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("recalib.registry.monitors.Monitors.record", broken)
        with pytest.raises(KeyError):
            watch(registry, model)
    with registry.reading() as tx:
        assert tx.monitors.all(model) == []
        assert tx.monitors.cohorts(model, 1, 0, 100) == []
    caught_up(registry, model)
    row = known(registry, model)
    assert (row.status["state"], row.status["evidence"]["labels"]) == ("stale", 2_000)
    assert kinds(registry, model) == ["stale"]


@pytest.mark.slow
def test_concurrent_monitoring_counts_labels_once(registry: Registry) -> None:
    model = a_champion(registry)
    Stream(registry, model).send(2_000, ago=2_000, seconds=1_000, slope=0.3)
    gate = threading.Barrier(3)

    def look(_: int) -> None:
        gate.wait()
        watch(registry, model)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(look, range(3)))
    row = known(registry, model)
    assert row.status["evidence"]["labels"] == 2_000
    assert sum(row.totals["labelled"]) == 2_000
    assert kinds(registry, model) == ["stale"]
    stale = replace(row, turn=row.turn)
    with pytest.raises(ConflictError), registry.transaction() as tx:
        tx.monitors.save(model, stale)


@pytest.mark.sqlite_only
def test_new_test_gets_the_remaining_alpha(registry: Registry) -> None:
    """Changed options start a new test, which has a smaller alpha."""
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(300, ago=2_000)
    caught_up(registry, model)
    first = known(registry, model)
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", replace(WATCHING, tolerance=0.03))
    stream.send(100, ago=1_000)
    caught_up(registry, model)
    second = known(registry, model)
    assert (first.number, second.number) == (1, 2)
    assert second.status["evidence"]["labels"] == 100
    assert second.status["evidence"]["threshold"] > first.status["evidence"]["threshold"] + 1
    assert sum(second.totals["labelled"]) == 400


@pytest.mark.sqlite_only
def test_state_of_earlier_bettors_continues_without_a_new_alpha(registry: Registry) -> None:
    """Rows that an earlier version of Recalib wrote name the number of its bettors."""
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(300, ago=2_000)
    caught_up(registry, model)
    with registry.reading() as tx:
        first = tx.monitors.find(model, 1, with_state=True)
    assert first is not None
    saved = Path(__file__).parents[1] / "drift" / "states_of_version_1.json"
    test = json.loads(saved.read_text())["drift"]
    state = copy.deepcopy(dict(first.state))
    state["all"] |= {"test": test["state"], "onsets": [first.through] * 6}
    with registry.transaction() as tx:
        options = {**first.options, "bettors": 2}
        tx.monitors.save(model, replace(first, turn=first.turn + 1, options=options, state=state))
    stream.send(100, ago=1_000)
    caught_up(registry, model)
    second = known(registry, model)
    assert second.number == first.number
    assert second.status["evidence"]["threshold"] == first.status["evidence"]["threshold"]
    assert second.status["evidence"]["labels"] == test["labels"] + 100


@pytest.mark.slow
def test_many_cohorts_are_caught_up_with_in_short_transactions(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cohorts and labels are read in parts."""
    monkeypatch.setattr("recalib.registry.labels._PART", 7)
    monkeypatch.setattr(live_cohorts, "_MAX_COHORTS", 7)
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(400, ago=4_000, seconds=1_200)
    assert caught_up(registry, model) in (20, 21)
    row = known(registry, model)
    assert row.turn == 3
    assert row.status["evidence"]["labels"] == 400
    monkeypatch.setattr(live_cohorts, "_MAX_LABELS", 100)
    stream.send(400, ago=2_000, seconds=1_200)
    assert caught_up(registry, model) in (20, 21)
    row = known(registry, model)
    assert 3 + 3 <= row.turn <= 3 + 4
    assert sum(row.totals["labelled"]) == row.status["evidence"]["labels"] == 800


@pytest.mark.sqlite_only
@pytest.mark.parametrize("error", [ConflictError("no"), IndexError("a defect")])
def test_a_failing_model_does_not_stop_monitoring_of_others(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model = a_champion(registry)
    Stream(registry, model).send(300, ago=2_000)
    with registry.transaction() as tx:
        tx.models.create("broken", None, 4, "anna")
        job = tx.jobs.enqueue(MONITOR, {}, unique=MONITOR)
    real = monitoring.watch

    def fail_for_broken(registry: Registry, model: Model, links: Any) -> int | None:
        if model.name == "broken":
            raise error
        return real(registry, model, links)

    monkeypatch.setattr(monitoring, "watch", fail_for_broken)
    assert Worker(registry, {MONITOR: run_monitor}, name="test").work_once(threading.Event())
    with registry.reading() as tx:
        finished = tx.jobs.get(job.id)
    assert finished.state == "succeeded"
    assert finished.result is not None
    assert (finished.result["models"], finished.result["failed"]) == (1, 1)
    assert known(registry, model).status["evidence"]["labels"] == 300


@pytest.mark.slow
def test_only_processed_traffic_is_aggregated(registry: Registry) -> None:
    model = a_champion(registry)
    stream = Stream(registry, model)
    stream.send(100, ago=3 * 86_400, seconds=9_000)
    with registry.reading() as tx:
        before = tx.traffic.between(model, 1, 0, 1e11)
    caught_up(registry, model)
    tidy(registry, model)
    with registry.reading() as tx:
        after = tx.traffic.between(model, 1, 0, 1e11)
    assert len(after) < len(before)
    assert sum(bucket.predictions for bucket in after) == 100
    hour = known(registry, model).through // 3_600 * 3_600
    assert {bucket.started_at % 3_600 for bucket in after if bucket.started_at < hour} == {0}


def test_unmonitored_traffic_is_aggregated_and_deleted(registry: Registry) -> None:
    """Applies to versions that no longer serve and models whose monitoring fails, once an hour."""
    model = a_champion(registry)
    stream = Stream(registry, model)
    caught_up(registry, model)
    with registry.transaction() as tx:
        row = known(registry, model)
        tx.monitors.save(model, replace(row, turn=row.turn + 1, through=stream.now - 100 * 86_400))
        tx.connection.execute(delete(tables.aliases))
    stream.send(100, ago=91 * 86_400)
    stream.send(100, ago=4 * 86_400, seconds=9_000)

    def buckets() -> set[int]:
        with registry.transaction() as tx:
            tx.jobs.enqueue(MONITOR, {}, unique=MONITOR)
        assert Worker(registry, {MONITOR: run_monitor}, name="test").work_once(threading.Event())
        with registry.reading() as tx:
            return {bucket.started_at for bucket in tx.traffic.between(model, 1, 0, 1e11)}

    starts = buckets()
    assert {start % 3_600 for start in starts} == {0}
    assert min(starts) > stream.now - 5 * 86_400
    if stream.now // 3_600 == time.time() // 3_600:
        stream.send(100, ago=3 * 86_400, seconds=9_000)
        assert {start % 3_600 for start in buckets()} != {0}
