"""Replays: a log of the past leaves the monitoring that its predictions would have left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from sqlalchemy import update

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.core.prediction_ids import Prediction
from recalib.drift import spend_alpha
from recalib.drift.calibration_sums import left_closed_bins
from recalib.registry import (
    Assessment,
    Job,
    Model,
    MonitoringSettings,
    MonitorRow,
    Registry,
    TrafficCount,
    monitoring_tables,
)
from recalib.registry.job_kinds import REFIT, REPLAY
from recalib.registry.monitors import Monitors
from recalib.replay import Replay, ReplayOptions, replay
from tests.end_to_end.programs import PATIENCE_SECONDS, until
from tests.training.heartbeats import notice_of_interruption
from tests.training.watched import Stream, a_champion
from training.checkpoint_blobs import sweep_checkpoints
from training.main import HANDLERS
from training.monitoring_job import watch
from training.replay_job import run_replay
from training.worker import Worker

_LENGTH, _MATURITY, _DAY = 600.0, 3_600.0, 86_400.0
_MONITORING = MonitoringSettings(
    objective=0.15,
    cohort_seconds=_LENGTH,
    maturity_seconds=_MATURITY,
    least_labels=200,
    window_labels=1_000,
)
Values = NDArray[np.float64]


def end_of_log(registry: Registry) -> float:
    """Return the last time of a log: one second after a cohort has matured."""
    with registry.reading() as tx:
        now = tx.clock()
    return (now - _MATURITY) // _LENGTH * _LENGTH + _MATURITY + 1 - _LENGTH


def columns_of(
    registry: Registry,
    model: Model,
    rows: int = 3_000,
    *,
    hours: float = 12,
    slope: float = 0.3,
    ago: float = 0.0,
) -> dict[str, Any]:
    """Return a log of `hours` that ends `ago` seconds ago; it drifts after half of the time.

    Parameters
    ----------
    slope: as in `Stream.send`, after half of the time.
    """
    random, end = np.random.default_rng(7), end_of_log(registry) - ago
    time = np.sort(end - 3_600 * hours + random.random(rows) * 3_600 * hours)
    time[0], time[-1] = end - 3_600 * hours - 1, end
    p = Stream(registry, model)._confidences(rows)
    truth = p.copy()
    drifted = time > end - 1_800 * hours
    truth[drifted] = 1 / (1 + ((1 - p[drifted]) / p[drifted]) ** slope)
    labelled = (random.random(rows) < 0.8) & (np.arange(rows) < rows - 1)
    delay = random.exponential(_MATURITY / 4, rows)
    right = random.random(rows) < truth
    came = np.where(labelled & (time + delay <= end), time + delay, np.nan)
    return {
        "time": time,
        "confidence": p,
        "correct": pa.array(right, mask=np.isnan(came)),
        "label_time": pa.array(came, mask=np.isnan(came)),
    }


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=1_000)
    return file.getvalue()


def enqueue(registry: Registry, model: Model, columns: dict[str, Any]) -> Job:
    """Upload a log, and enqueue its replay into version 1."""
    with registry.blobs.writer() as blob:
        blob.write(parquet(columns))
        with registry.storing(blob) as (tx, digest):
            payload = {
                "model": model.name, "version": 1, "rows": len(columns["time"]), "digest": digest,
                "shift_seconds": 0.0,
            }  # fmt: skip
            return tx.jobs.enqueue(REPLAY, payload, model=model, checkpoint={"upload": digest})


def work(registry: Registry, handler: Any = HANDLERS[REPLAY]) -> bool:
    return Worker(registry, {REPLAY: handler}, name="test").work_once(threading.Event())


def job_of(registry: Registry, job: Job) -> Job:
    with registry.reading() as tx:
        return tx.jobs.get(job.id)


def replayed(registry: Registry, model: Model, columns: dict[str, Any]) -> dict[str, Any]:
    """Replay a log; return the result of the job."""
    job = enqueue(registry, model, columns)
    assert work(registry)
    finished = job_of(registry, job)
    assert finished.state == "succeeded", finished.error
    assert finished.checkpoint is None
    assert finished.result is not None
    return finished.result


def monitor_of(registry: Registry, model: Model) -> MonitorRow:
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1, with_state=True)
    assert row is not None
    return row


def history_of(registry: Registry, model: Model) -> list[Assessment]:
    """Return the assessments, oldest first."""
    with registry.reading() as tx:
        return tx.monitors.assessments(model, 10_000)[::-1]


def local_replay(registry: Registry, columns: dict[str, Any], **options: Any) -> Replay:
    """Return what `recalib replay` says about a log with the settings of the model."""
    with registry.reading() as tx:
        card = convert(tx.calibrators.get(tx.models.get("resnet"), 1).card, Card)
    settings = ReplayOptions(
        alpha=spend_alpha(_MONITORING.alpha, 1),
        objective=_MONITORING.objective,
        window_labels=_MONITORING.window_labels,
        least_labels=_MONITORING.least_labels,
        maturity=_MATURITY,
        cohort=_LENGTH,
        **options,
    )
    return replay(io.BytesIO(parquet(columns)), settings, card=card)


def with_classes(columns: dict[str, Any]) -> dict[str, Any]:
    """Return a log of 4 classes with probabilities and labels."""
    random, p = np.random.default_rng(1), columns["confidence"]
    predicted = random.integers(0, 4, len(p))
    matrix = np.repeat((1 - p)[:, None] / 3, 4, axis=1)
    matrix[np.arange(len(p)), predicted] = p
    other = (predicted + 1 + random.integers(0, 3, len(p))) % 4
    right = columns["correct"].to_pylist()
    labels = [
        None if hit is None else int(predicted[k] if hit else other[k])
        for k, hit in enumerate(right)
    ]
    return {**columns, "probabilities": list(matrix), "label": pa.array(labels, pa.int64())}


@pytest.mark.slow
@pytest.mark.sqlite_only
@pytest.mark.parametrize(("slope", "classes"), [(0.3, ()), (1.0, ()), (0.3, ("0", "2"))])
def test_states_times_and_evidence_are_those_of_the_local_replay(
    registry: Registry, slope: float, classes: tuple[str, ...]
) -> None:
    model = a_champion(registry, replace(_MONITORING, classes=classes))
    columns = columns_of(registry, model, slope=slope)
    # The cohorts of `recalib replay` begin at the first prediction.
    columns["time"][0] = columns["time"][0] // _LENGTH * _LENGTH
    if classes:
        columns = with_classes(columns)
    expected = local_replay(registry, columns, classes=classes)
    result = replayed(registry, model, columns)

    assert result["state"] == expected.state
    counts = [result[name] for name in ("rows", "labelled", "late", "immature")]
    assert counts == [expected.rows, expected.labelled, expected.late, expected.immature]
    history = history_of(registry, model)
    assert len(history) == len(expected.windows) > 60
    for entry, window in zip(history, expected.windows, strict=True):
        assert (entry.started_at, entry.ended_at) == (window["start"], window["time"])
        assert entry.assessed_at == entry.ended_at + _MATURITY
        assert (entry.state, entry.replayed) == (window["state"], True)
        names = entry.evidence.keys() & window.keys()
        assert len(names) > 30
        for name in names:
            assert _is_close(entry.evidence[name], window[name]), name
    changes = [event for event in expected.events if event.status.state != "unverified"]
    with registry.reading() as tx:
        events = tx.monitors.events(model, 100)[::-1]
    assert [event.kind for event in events][:1] == ["fresh"]
    states = [(event.kind, event.reason) for event in events if event.kind != "unverified"]
    assert states == [(event.status.state, event.status.reason) for event in changes]
    assert ("stale" in dict(states)) is (slope < 1)
    for event in events:
        assert (event.replayed, event.actor) == (True, "replay")
        assert event.at.timestamp() in {entry.assessed_at for entry in history}
    status = monitor_of(registry, model).status
    if classes:
        assert expected.classes is not None
        evidence = status["classes"]
        assert evidence["log_evidence"] == pytest.approx(expected.classes.log_evidence)
        assert evidence["labels"] == expected.classes.labels > 1_000


def _is_close(value: Any, other: Any) -> bool:
    """Return whether two pieces of evidence are equal but for rounding."""
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(
            _is_close(value[name], other[name]) for name in value
        )
    return bool(value == pytest.approx(other))


def live_predictions(
    registry: Registry, model: Model, columns: dict[str, Any], segments: Values
) -> None:
    """Serve the rows of a log, with their times, and add their labels when they came."""
    stream, p, times = Stream(registry, model), columns["confidence"], columns["time"]
    cells: dict[tuple[int, int, int], list[float]] = {}
    for at, bin, confidence, segment in zip(
        times, left_closed_bins(stream.edges, p), p, segments, strict=True
    ):
        cells.setdefault((int(at // 60 * 60), int(segment), int(bin)), []).append(confidence)
    right, came = columns["correct"].to_pylist(), columns["label_time"].to_pylist()
    labels, table = {}, monitoring_tables.labels
    for k, hit in enumerate(right):
        if hit is not None:
            digest, segment = k.to_bytes(16, "big"), int(segments[k])
            prediction = Prediction(model.id, 1, times[k], 0.9, p[k], 1, digest, segment)
            labels[came[k]] = prediction, 1 if hit else 0
    with registry.transaction() as tx:
        tx.traffic.add(
            TrafficCount(model.id, 1, *cell, len(values), len(values), sum(values))
            for cell, values in cells.items()
        )
        tx.labels.add(model, list(labels.values()))
        for at, (prediction, _) in labels.items():
            tx.connection.execute(
                update(table).where(table.c.digest == prediction.digest).values(labelled_at=at)
            )


@pytest.mark.slow
def test_history_is_that_of_live_predictions(registry: Registry) -> None:
    """Also with segments, and the test that continues after it."""
    monitoring = replace(_MONITORING, segments=("eu",), refit="manual")
    past = a_champion(registry, monitoring)
    live = a_champion(registry, monitoring, "live")
    columns = columns_of(registry, past, 1_500, slope=0.1)
    segments = np.random.default_rng(2).integers(0, 2, 1_500).astype(float)
    live_predictions(registry, live, columns, segments)
    names = pa.array([["", "eu"][int(number)] or None for number in segments], pa.string())
    replayed(registry, past, {**columns, "segment": names})
    assert watch(registry, live)

    first, second = history_of(registry, past), history_of(registry, live)
    # Cohorts that have matured after the end of the log.
    second = [entry for entry in second if entry.ended_at <= first[-1].ended_at]
    for a, b in zip(first, second, strict=True):
        assert (a.started_at, a.ended_at, a.state) == (b.started_at, b.ended_at, b.state)
        for name in b.evidence:
            # A live assessment compares with the confidences that are served now.
            if not name.startswith("psi"):
                assert _is_close(a.evidence[name], b.evidence[name]), name
    assert {"fresh", "stale"} <= {entry.state for entry in first}


@pytest.mark.slow
def test_live_labels_continue_the_test(registry: Registry) -> None:
    """A stale state from the log requests no refit before a live cohort has been read."""
    model = a_champion(registry)
    assert watch(registry, model) == 0  # an assessment without predictions is no obstacle
    with registry.transaction() as tx:
        model = tx.models.set_monitoring(model.name, _MONITORING)
    result = replayed(registry, model, columns_of(registry, model))
    before = monitor_of(registry, model)
    assert (before.turn, before.replayed_through) == (2, result["through"])
    assert before.late == result["late"] > 0
    assert sum(before.totals["labelled"]) == 0  # the counters of metrics are of live labels

    def refits() -> int:
        with registry.reading() as tx:
            return len([job for job in tx.jobs.unfinished(model) if job.kind == REFIT])

    assert watch(registry, model) == 0
    assert monitor_of(registry, model).status["state"] == "stale"
    assert refits() == 0
    stream = Stream(registry, model)
    with registry.transaction() as tx:
        tx.models.set_monitoring(model.name, replace(_MONITORING, maturity_seconds=60.0))
    stream.send(300, ago=stream.now - result["through"] - 10, seconds=60)
    assert watch(registry, model) == 1
    after = monitor_of(registry, model)
    labels = after.status["evidence"]["labels"]
    assert labels == before.status["evidence"]["labels"] + 300
    assert (after.replayed_through, sum(after.totals["labelled"])) == (result["through"], 300)
    assert [entry.replayed for entry in history_of(registry, model)][-2:] == [True, False]
    assert refits() == 1


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_only_the_kept_history_is_written(registry: Registry) -> None:
    """Older rows count for the state."""
    model = a_champion(registry, replace(_MONITORING, cohort_seconds=_DAY))
    columns = columns_of(registry, model, hours=24 * 120, slope=1.0)
    result = replayed(registry, model, columns)
    history = history_of(registry, model)
    assert result["history"] == len(history) == pytest.approx(90, abs=2)
    assert result["cohorts"] == pytest.approx(120, abs=2)
    assert monitor_of(registry, model).status["evidence"]["labels"] > 0.9 * result["labelled"]


@pytest.mark.sqlite_only
def test_version_with_monitoring_state_is_refused(registry: Registry) -> None:
    """Nothing is written twice, and predictions that were served here are not covered."""
    model = a_champion(registry, _MONITORING)
    columns = columns_of(registry, model, 200, hours=3)
    jobs = [enqueue(registry, model, columns) for _ in range(2)]
    while work(registry):
        pass
    states = [(job_of(registry, job).state, job_of(registry, job).error or "") for job in jobs]
    assert [state for state, _ in states] == ["succeeded", "failed"]
    assert "publish the calibrator again" in states[1][1]

    other = a_champion(registry, _MONITORING, "other")
    stream = Stream(registry, other)
    stream.send(10, ago=stream.now - columns["time"][0])
    job = enqueue(registry, other, columns)
    assert work(registry)
    assert "cut the log at that time" in (job_of(registry, job).error or "")
    with registry.reading() as tx:
        assert tx.monitors.find(other, 1) is None


@pytest.mark.sqlite_only
def test_replay_writes_beside_a_monitoring_job(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that the monitoring job takes meanwhile is no conflict."""
    model = a_champion(registry, _MONITORING)
    assert watch(registry, model) == 0
    save = Monitors.save

    def overtaken(self: Monitors, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Monitors, "save", save)
        model, row, *rest = arguments
        save(self, model, replace(row, turn=row.turn + 1), *rest, **options)

    job = enqueue(registry, model, columns_of(registry, model, 200, hours=3))
    monkeypatch.setattr(Monitors, "save", overtaken)
    assert work(registry)
    assert job_of(registry, job).state == "succeeded"


@pytest.mark.sqlite_only
def test_cancelled_replay_leaves_nothing(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = notice_of_interruption(monkeypatch)
    model = a_champion(registry, _MONITORING)
    stored = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    job = enqueue(registry, model, columns_of(registry, model, 200, hours=4))
    steps = 0

    def cancel() -> None:
        nonlocal steps
        steps += 1
        if steps == 5:
            with registry.transaction() as tx:
                tx.jobs.cancel(job.id)
            assert notice.wait(PATIENCE_SECONDS)

    worker = Worker(
        registry, {REPLAY: partial(run_replay, pause=cancel)}, name="t", lease_seconds=0.6
    )
    assert worker.work_once(threading.Event())
    assert job_of(registry, job).state == "cancelled"
    assert 5 <= steps < 15
    with registry.reading() as tx:
        assert tx.monitors.find(model, 1) is None
        assert tx.monitors.events(model, 100) == []
    assert history_of(registry, model) == []
    sweep_checkpoints(registry)
    assert {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == stored


# Leases on PostgreSQL: `tests/training/test_processes.py`.
@pytest.mark.sqlite_only
@pytest.mark.slow
def test_killed_replay_begins_again_and_counts_once(
    registry: Registry, database_url: str, blob_url: str
) -> None:
    """kill -9 in the middle; another worker leaves what an undisturbed replay leaves."""
    undisturbed = a_champion(registry, _MONITORING)
    model = a_champion(registry, _MONITORING, "killed")
    columns = columns_of(registry, model, 150_000)
    expected = replayed(registry, undisturbed, columns)
    job = enqueue(registry, model, columns)
    command = [sys.executable, "-m", "tests.training.batch_worker", database_url, blob_url]
    process = subprocess.Popen(command)
    try:
        until(lambda: "replaying" in str(job_of(registry, job).progress), "the replay to begin")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert job_of(registry, job).state == "running"
    with registry.reading() as tx:
        assert tx.monitors.find(model, 1) is None
    until(lambda: work(registry), "the end of the lease")
    finished = job_of(registry, job)
    assert (finished.attempts, finished.result) == (2, expected)
    assert monitor_of(registry, model) == replace(
        monitor_of(registry, undisturbed), number=monitor_of(registry, model).number
    )
