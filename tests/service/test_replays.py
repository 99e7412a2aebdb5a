"""Replays over REST and gRPC: a log is uploaded, checked, and shown as monitoring of the past."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc, refused

DIGITS = "/v1/models/digits"
REPLAYS = f"{DIGITS}/monitoring/replays"
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
SETTINGS = {"cohort_seconds": 3_600, "maturity_seconds": 60, "least_labels": 50, "objective": 0.3}
_HOUR = 3_600.0


def log_of(rows: int = 600, *, hours: float = 6, **columns: Any) -> bytes:
    """Return a log of a classifier that is too sure; it ends two hours ago."""
    random = np.random.default_rng(5)
    time = np.sort(random.random(rows)) * hours * _HOUR
    confidence = 0.8 + 0.2 * random.random(rows)
    content = {
        "time": datetime.now().timestamp() - (hours + 2) * _HOUR + time,
        "confidence": confidence,
        "correct": random.random(rows) < 0.5,
    }
    file = io.BytesIO()
    pq.write_table(pa.table(content | columns), file)
    return file.getvalue()


def upload(service: Service, content: bytes, headers: Any = PARQUET, **query: Any) -> Any:
    return service.client.post(REPLAYS, content=content, headers=headers, params=query)


@pytest.fixture
def monitored(ready: Service) -> Service:
    answer = ready.client.put(f"{DIGITS}/monitoring/settings", json=SETTINGS)
    assert answer.status_code == 200, answer.text
    return ready


def test_log_may_be_longer_than_a_json_document(
    monitored: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is an upload, with the limit of uploads."""
    monkeypatch.setattr("service.http.bodies.MAX_DOCUMENT_BYTES", 1_000)
    log = log_of()
    assert len(log) > 1_000
    assert upload(monitored, log).status_code == 202


@pytest.mark.both_databases
def test_replay_is_shown_as_monitoring_of_the_past(
    monitored: Service, rpc: Rpc, tmp_path: Path
) -> None:
    """By the report, the history and the events, and never sent to a receiver."""
    client, registry = monitored.client, monitored.registry
    stored = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    webhook = client.post("/v1/webhooks", json={"url": "https://example.com/"}).json()
    answer = upload(monitored, log_of())
    assert answer.status_code == 202, answer.text
    monitored.work()
    result = client.get(f"/v1/jobs/{answer.json()['id']}").json()["result"]
    described = [result[name] for name in ("version", "rows", "labelled", "late", "state")]
    assert described == [1, 600, 600, 0, "stale"]
    assert result["events"][-1]["state"] == "stale"

    report = client.get(f"{DIGITS}/monitoring").json()
    through = datetime.fromisoformat(report["replayed_through"]).timestamp()
    assert (report["state"], through) == ("stale", result["through"])
    assert all(window["replayed"] for window in report["windows"])
    event, *_ = report["events"]
    assert (event["kind"], event["actor"], event["replayed"]) == ("stale", "replay", True)
    assert event["at"] < report["assessed_at"]
    history = client.get(f"{DIGITS}/monitoring/history").json()["items"]
    assert len(history) == result["cohorts"] == result["history"] >= 4
    assert {(entry["version"], entry["replayed"]) for entry in history} == {(1, True)}
    assert sum(entry["measured"]["labelled"] for entry in history) == 600 - result["immature"]

    message = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="digits"))
    assert (message.replayed_through.ToSeconds(), message.events[0].replayed) == (through, True)
    assert all(window.replayed for window in message.windows)
    page = rpc.monitoring.list_monitoring_history(pb.ListMonitoringHistoryRequest(model="digits"))
    assert all(entry.replayed for entry in page.items)

    events = client.get("/v1/events?type=monitoring&limit=1").json()["items"]
    assert events[0]["data"]["replayed"] is True
    assert datetime.fromisoformat(event["at"]).timestamp() == pytest.approx(
        events[0]["data"]["time"], abs=0.001
    )
    with registry.transaction() as tx:
        lease = tx.webhooks.claim(60.0)
        assert lease is not None
        types = {item.event.type for item in lease.due}
    assert (webhook["enabled"], "job.succeeded" in types) == (True, True)
    assert "monitoring.state_changed" not in types
    entry = client.get("/v1/audit?action=create_replay").json()["items"][0]
    assert entry["target"] == answer.json()["id"]
    assert "version 1: 600 rows from" in entry["detail"]
    assert {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == stored


@pytest.mark.sqlite_only
def test_log_may_be_text_with_names_of_classes(service: Service, data: Any) -> None:
    """CSV with ISO times, a column for each class and names as labels; the job says which."""
    service.model(classes=["cat", "dog", "eel", "fox"])
    service.upload(npz(*data))
    service.fitted()
    service.client.put(f"{DIGITS}/monitoring/settings", json=SETTINGS)
    table = pq.read_table(io.BytesIO(log_of()))
    p = table["confidence"].to_numpy()
    columns = {
        "timestamp": (table["time"].to_numpy() * 1e6).astype("datetime64[us]"),
        **{f"probability_{k}": (1 - p) / 3 for k in range(3)},
        "probability_3": p,
        "label": np.where(table["correct"].to_numpy(), "fox", "cat"),
    }
    file = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns), file)
    answer = upload(service, file.getvalue(), {"Content-Type": "text/csv"})
    assert answer.status_code == 202, answer.text
    service.work()
    result = service.client.get(f"/v1/jobs/{answer.json()['id']}").json()["result"]
    assert (result["state"], result["labelled"]) == ("stale", 600)
    assert result["times"] == {"time": "texts in UTC"}


@pytest.mark.sqlite_only
def test_replay_of_a_version_by_rpc_ends_now(monitored: Service, rpc: Rpc) -> None:
    """Of a version that is no champion; a repeated request with the same key has no effect."""
    monitored.fitted(map="identity", promote=False)
    header = pb.CreateReplayRequest(
        header=pb.ReplayHeader(model="digits", version="2", to_now=True)
    )
    content = log_of(200)
    chunks = [pb.CreateReplayRequest(chunk=content[k : k + 5_000]) for k in (0, 5_000)]
    chunks[-1].chunk = content[5_000:]
    metadata = (("idempotency-key", "past"),)
    ids = []
    for _ in range(2):
        job = rpc.monitoring.create_replay(iter([header, *chunks]), metadata=metadata)
        ids.append(job.id)
        monitored.work()
    assert ids[0] == ids[1]
    history = monitored.client.get(f"{DIGITS}/monitoring/history?version=2").json()["items"]
    assert history[0]["replayed"] is True
    age = datetime.now().timestamp() - datetime.fromisoformat(history[0]["end"]).timestamp()
    assert 60 <= age <= 2 * _HOUR + 120
    assert monitored.client.get(f"{DIGITS}/monitoring").json()["replayed_through"] is None
    create = rpc.monitoring.create_replay
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, create, iter(chunks))
    assert "header" in error.details()


@pytest.mark.sqlite_only
def test_unusable_logs_are_refused_when_they_arrive(monitored: Service) -> None:
    future: dict[str, Any] = {"time": datetime.now().timestamp() + 86_400 + np.arange(600.0) * 60}
    wide: dict[str, Any] = {"probabilities": [[0.9, 0.1]] * 600, "confidence": np.full(600, 0.9)}
    refusals: list[tuple[bytes, dict[str, str], int, str]] = [
        (b"", {}, 422, "body"),
        (b"no table", {}, 422, "a complete csv file"),
        (b"PAR1, and no table", {}, 422, "no Parquet footer"),
        (log_of(confidence=np.full(600, 1.5)), {}, 422, "confidence[0]"),
        (log_of(segment=["eu"] * 600), {}, 422, "the model has no segments"),
        (log_of(**future), {}, 422, "in the future"),
        (log_of(**wide), {}, 422, "4 classes"),
        (log_of(time=np.arange(-600.0, 0.0)), {}, 422, "before 1970"),
        (log_of(hours=0.005), {}, 422, "maturity_seconds"),
        (log_of(hours=50_000), {}, 422, "at most 10,000"),
        (log_of(), {"version": "9"}, 404, "version"),
        (log_of(), {"version": "canary"}, 404, "canary"),
    ]
    for content, query, status, word in refusals:
        answer = upload(monitored, content, **query)
        assert (answer.status_code, word in answer.text) == (status, True), answer.text
    assert upload(monitored, log_of(), {"Content-Type": "text/plain"}).status_code == 415
    jobs = monitored.client.get("/v1/jobs?job_state=queued").json()["items"]
    assert "replay" not in [job["kind"] for job in jobs]


@pytest.mark.sqlite_only
def test_second_replay_is_a_conflict(monitored: Service) -> None:
    assert upload(monitored, log_of(200)).status_code == 202
    monitored.work()
    answer = upload(monitored, log_of(200))
    assert answer.status_code == 409
    assert "publish the calibrator again" in answer.json()["detail"]
