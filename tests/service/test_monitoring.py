"""Monitoring reports over REST and gRPC, from results of the worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import grpc
import numpy as np
import pytest

from recalib.errors import ConflictError
from recalib.fitting.fit import fit
from recalib.registry import Challenger, Model, TrafficCount
from recalib.registry.candidates import Candidates
from recalib.shift import FixedShare, Shadow
from recalib.shift.shadow import ShadowState
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.monitoring.flush import flush
from service.serving.logit_sampling import write_captures
from tests.fitting.conftest import draw
from tests.registry.scenes import a_lease
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused
from tests.service.test_console import Browser
from tests.training.watched import CAPTURING, WATCHING, Stream, a_champion
from training.monitoring_job import watch
from training.refit_job import refit_is_due

pytestmark = pytest.mark.sqlite_only


def report(service: Service, model: str = "resnet") -> dict[str, Any]:
    answer = service.client.get(f"/v1/models/{model}/monitoring")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_report_is_empty_before_the_first_look(service: Service) -> None:
    """Without a champion, and before the first assessment."""
    service.model()
    body = report(service, "digits")
    assert (body["state"], body["version"], body["windows"]) == ("unverified", None, [])
    assert "no champion" in body["reason"]
    a_champion(service.registry)
    body = report(service)
    assert (body["state"], body["version"], body["assessed_at"]) == ("unverified", 1, None)
    assert "there are no predictions; the first assessment comes at most 180 s" in body["reason"]
    with service.registry.transaction() as tx:
        model = tx.models.get("resnet")
        made_at = int(datetime(2026, 1, 1, 7, 30, tzinfo=UTC).timestamp())
        tx.traffic.add([TrafficCount(model.id, 1, made_at, 0, 3, 1, 1, 0.9)])
    reason = report(service)["reason"]
    # The cohort ends after a minute, and labels may arrive for two.
    assert (model.monitoring.cohort_seconds, model.monitoring.maturity_seconds) == (60, 120)
    assert "comes after 2026-01-01 07:33 UTC" in reason
    assert reason.endswith(f"a state needs at least {model.monitoring.least_labels}")


@pytest.fixture
def stale(service: Service) -> Service:
    """A service whose champion became stale in one of two segments."""
    settings = replace(WATCHING, segments=("eu",), objective=0.15, selection_ratio=1.1)
    model = a_champion(service.registry, settings)
    stream = Stream(service.registry, model)
    stream.send(1_500, ago=4_000, seconds=1_000)
    watch(service.registry, model)
    stream.send(2_000, ago=2_000, seconds=1_000, slope=0.3, segment=1, labelled=0.5)
    watch(service.registry, model)
    return service


@pytest.mark.both_databases
def test_report_has_state_evidence_windows_and_events(stale: Service, rpc: Rpc) -> None:
    body = report(stale)
    assert (body["state"], body["version"]) == ("stale", 1)
    assert body["since"] <= body["assessed_at"]
    assert body["onset"] < body["since"]
    evidence = body["evidence"]
    for name in (
        "log_evidence", "threshold", "ece", "ece_floor", "ece_low", "ece_high", "ce", "ce_low",
        "ce_high", "selection_ratio", "selection_low",
        "selection_high", "silent", "n", "traffic", "coverage", "delay", "psi", "psi_threshold",
    ):  # fmt: skip
        assert isinstance(evidence[name], int | float), name
    assert {segment["segment"]: segment["state"] for segment in body["segments"]}["eu"] == "stale"
    assert body["alert"]["command"] == "recalib monitoring resnet"
    assert body["alert"] == body["events"][0]["evidence"]["alert"]
    assert body["alert"]["onset"] == body["onset"]
    assert [event["kind"] for event in body["events"]] == ["stale", "fresh"]
    windows = body["windows"]
    assert windows == sorted(windows, key=lambda window: window["start"], reverse=True)
    # The first window can be too short for two labels: windows start at full minutes.
    second, oldest = windows[1]["measured"], windows[-1]["measured"]
    assert second["coverage"] == second["labelled"] / second["traffic"]
    assert oldest["coverage"] == 1
    assert second["ece_low"] <= second["ece"] <= second["ece_high"]
    assert second["selection_low"] <= second["ece_low"]
    assert second["ece_high"] <= second["selection_high"]
    # Labels are missing at random in one segment, at all confidences.
    assert body["may_be_selection"] is False
    drifted = [window["measured"] for window in windows[1:15]]
    assert sum(window["ece"] - window["ece_floor"] for window in drifted) > 0
    assert sum(window["measured"]["traffic"] for window in windows) == 3_500

    by_rpc = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet"))
    assert (by_rpc.state, by_rpc.version) == (pb.CALIBRATION_STATE_STALE, 1)
    assert by_rpc.reason == body["reason"]
    assert by_rpc.evidence["ece"] == evidence["ece"]
    assert by_rpc.evidence["selection_high"] == evidence["selection_high"]
    assert by_rpc.may_be_selection is False
    assert len(by_rpc.windows) == len(windows)
    assert by_rpc.windows[1].measured["ece"] == second["ece"]
    assert [event.kind for event in by_rpc.events] == ["stale", "fresh"]
    assert by_rpc.segments[0].state in pb.CalibrationState.values()


@pytest.mark.slow
@pytest.mark.both_databases
def test_history_has_the_state_after_each_cohort(stale: Service, rpc: Rpc) -> None:
    url, items, cursor = "/v1/models/resnet/monitoring/history", [], None
    while True:
        query = {"limit": 5} if cursor is None else {"limit": 5, "cursor": cursor}
        page = stale.client.get(url, params=query).json()
        items += page["items"]
        assert len(page["items"]) <= 5
        cursor = page["next_cursor"]
        if cursor is None:
            break
    windows = report(stale)["windows"]
    assert [item["start"] for item in items[: len(windows)]] == [w["start"] for w in windows]
    assert [item["measured"] for item in items[: len(windows)]] == [w["measured"] for w in windows]
    assert len(items) > 5
    assert items[0]["state"] == "stale"
    assert items[0]["evidence"]["log_evidence"] > items[0]["evidence"]["threshold"]
    states = [item["state"] for item in reversed(items)]
    assert states.index("fresh") < states.index("stale")
    assert {item["version"] for item in items} == {1}
    assert stale.client.get(url, params={"version": 2}).json() == {"items": [], "next_cursor": None}
    assert stale.client.get(url, params={"cursor": "eA=="}).status_code == 422

    request = pb.ListMonitoringHistoryRequest(model="resnet", limit=2)
    by_rpc = rpc.monitoring.list_monitoring_history(request)
    assert [entry.state for entry in by_rpc.items] == [pb.CALIBRATION_STATE_STALE] * 2
    request = pb.ListMonitoringHistoryRequest(model="resnet", cursor=by_rpc.next_cursor)
    rest = rpc.monitoring.list_monitoring_history(request)
    assert len(rest.items) == len(items) - 2
    assert rest.items[0].measured["ece"] == items[2]["measured"]["ece"]


@pytest.mark.slow
def test_selection_of_labels_is_reported(service: Service, rpc: Rpc) -> None:
    """Over REST, gRPC and metrics, for all traffic; a status of an earlier version has none."""
    model = a_champion(service.registry)
    stream = Stream(service.registry, model)
    stream.send(2_000, ago=4_000, seconds=1_000, slope=0.3)
    watch(service.registry, model)
    metric = 'recalib_evidence_may_be_selection{calibrator="1",model="resnet",segment=""}'
    for flag in (True, False):
        with service.registry.transaction() as tx:
            row = tx.monitors.find(model, 1)
            assert row is not None
            status = {**row.status, "may_be_selection": flag}
            if not flag:
                del status["may_be_selection"], status["evidence"]["silent"]
            tx.monitors.save(model, replace(row, turn=row.turn + 1, status=status))
        assert report(service)["may_be_selection"] is flag
        answer = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet"))
        assert answer.may_be_selection is flag
        text = service.client.get("/metrics").text
        assert f"{metric} {float(flag)}" in text
        assert ("recalib_silent_traffic_ratio{" in text) is flag


@pytest.mark.parametrize(
    ("labelled", "warning", "since", "reason"),
    [
        (0.0, "labels_stopped", "silent_since", "no labels since 20"),
        (0.05, "labels_rare", "rare_since", "labels are rare since 20"),
    ],
)
def test_the_end_of_labels_is_reported(
    service: Service, rpc: Rpc, labelled: float, warning: str, since: str, reason: str
) -> None:
    """In the reason, over REST and gRPC, and as a metric; not while labels arrive."""
    model = a_champion(service.registry, replace(WATCHING, objective=0.15))
    stream = Stream(service.registry, model)
    stream.send(2_000, ago=4_000, seconds=1_000)
    watch(service.registry, model)
    metric = f"recalib_{since}_timestamp_seconds{{"
    assert report(service)["state"] == "fresh"
    assert metric not in service.client.get("/metrics").text
    stream.send(500, ago=2_000, seconds=1_000, slope=0.3, labelled=labelled)
    watch(service.registry, model)
    body = report(service)
    assert reason in body["reason"]
    evidence = body["evidence"]
    silent = 500 / evidence["traffic"] if warning == "labels_stopped" else 0
    assert evidence["silent"] == pytest.approx(silent)
    assert [event["kind"] for event in body["events"][:2]] == ["unverified", warning]
    [warned] = service.client.get("/v1/events?type=monitoring.warned").json()["items"]
    assert warned["data"]["warning"] == warning
    assert warned["data"]["reason"] == body["reason"]
    answer = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet"))
    assert answer.evidence[since] == evidence[since]
    lines = service.client.get("/metrics").text.splitlines()
    value = next(line for line in lines if line.startswith(metric)).split()[-1]
    assert float(value) == evidence[since]


def test_label_shift_in_shadow_is_reported(service: Service, rpc: Rpc) -> None:
    """Over REST, gRPC, metrics and the console; without the setting there is none."""
    model = a_champion(service.registry, replace(CAPTURING, adaptation="shadow"))
    Stream(service.registry, model).send(500, ago=4_000, seconds=1_000)
    watch(service.registry, model)
    assert report(service)["adaptation"] is None
    assert "recalib_adaptation_state{" not in service.client.get("/metrics").text
    state = ShadowState(7, 1e9, (2.0, 1.0, 0.5, 0.5), (0.5, 0.25, 0.125, 0.125), 2_000, 0.03)
    shadow = Shadow((0.25,) * 4, 2e9, 2e9, (state,), FixedShare(0.875, 300, 12.5))
    with service.registry.transaction() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        tx.monitors.adapt(model, row, shadow.to_dict())
    found = report(service)["adaptation"]
    assert (found["number"], found["since"], found["labels"]) == (7, 1e9, 300)
    assert found["priors"] == [0.5, 0.25, 0.125, 0.125]
    answer = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet"))
    assert answer.adaptation["weight"] == 0.875
    text = service.client.get("/metrics").text
    owner = '{calibrator="1",model="resnet"}'
    for line in ("state{} 7.0", "weight_ratio{} 0.875", "applied_ratio{} 0.0"):
        assert f"recalib_adaptation_{line.format(owner)}" in text
    page = Browser(service.client.app).get("models/resnet/monitoring").text
    assert "Label shift, in shadow" in page
    assert "+12.5 on 300 labels" in page
    with service.registry.transaction() as tx:
        tx.models.set_monitoring("resnet", CAPTURING)
    assert report(service)["adaptation"] is None
    assert "recalib_adaptation_state{" not in service.client.get("/metrics").text


@pytest.mark.slow
def test_windows_of_watched_classes_are_reported(service: Service, rpc: Rpc) -> None:
    """Over REST, gRPC and metrics; a status of an earlier version has none."""
    model = a_champion(service.registry, replace(WATCHING, classes=("1", "2")))
    stream = Stream(service.registry, model)
    stream.send(500, ago=4_000, seconds=1_000)
    stream.send(500, ago=4_000, seconds=1_000, predicted=2, labelled=0.0)
    watch(service.registry, model)
    body = report(service)
    assert body["evidence"]["silent"] == 0.5
    assert "no labels for predictions of class 2" in body["evidence"]["silent_reason"]
    windows = body["classes"]["windows"]
    assert [window["predictions"] for window in windows] == [500, 500]
    answer = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet"))
    assert answer.classes["windows"][1]["silent"] is True
    text = service.client.get("/metrics").text
    owner = 'calibrator="1",class="{}",model="resnet"'
    assert f"recalib_class_silent{{{owner.format(2)}}} 1.0" in text
    assert f"recalib_class_window_labels{{{owner.format(1)}}} 500.0" in text
    assert f"recalib_class_accuracy_ratio{{{owner.format(2)}}}" not in text
    with service.registry.transaction() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        del row.status["classes"]["windows"]
        tx.monitors.save(model, replace(row, turn=row.turn + 1))
    assert "recalib_class_silent{" not in service.client.get("/metrics").text


def test_refit_is_queued_once_and_its_candidate_is_reported(service: Service, rpc: Rpc) -> None:
    """REST and gRPC return the same job; the worker sets its result."""
    model = a_champion(service.registry, replace(WATCHING, capture=1.0))
    assert report(service)["candidate"] is None
    answers = [service.client.post("/v1/models/resnet/monitoring/refit") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    job = rpc.monitoring.create_refit(pb.CreateRefitRequest(model="resnet"))
    assert {job.id, *(answer.json()["id"] for answer in answers)} == {job.id}
    service.work()
    assert "are needed" in service.client.get(f"/v1/jobs/{job.id}").json()["result"]["reason"]
    with service.registry.transaction() as tx:
        now = tx.clock()
        tx.candidates.add(model, Challenger(1, 1, 0, now, now, 0.05, {}, None, None))
    candidate = report(service)["candidate"]
    assert (candidate["version"], candidate["verdict"], candidate["evidence"]["labels"]) == (
        1,
        None,
        0,
    )
    by_rpc = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="resnet")).candidate
    assert (by_rpc.version, by_rpc.verdict) == (1, "")
    assert by_rpc.evidence["threshold"] == candidate["evidence"]["threshold"]


@pytest.mark.parametrize("verdict", [None, "proven"])
def test_candidates_can_be_dropped(service: Service, rpc: Rpc, verdict: str | None) -> None:
    """During the comparison or after it won; over REST and gRPC, with actor and reason.

    A repeated drop has no effect and no entry; a worker that read the candidate before
    cannot promote it.
    """
    model = a_champion(service.registry)
    other = fit(*draw(500, 4, 2.0), map="temperature")
    versions = []
    for _ in range(2):
        lease = a_lease(service.registry)
        with service.registry.transaction() as tx:
            card, data = other.card.to_dict(), other.to_bytes()
            version = tx.calibrators.publish(lease, model, None, card, data, None, "")
            tx.jobs.succeed(lease, {})
            begun = Challenger(version, 1, 3, 1.0, 1.0, 0.05, {}, verdict, None)
            tx.candidates.add(model, begun)
        versions.append(version)
        if version == 2:
            answer = service.client.delete(
                "/v1/models/resnet/monitoring/candidates/2", params={"reason": "odd"}
            )
            assert (answer.status_code, answer.json()["verdict"]) == (200, "dropped")
        else:
            request = pb.DropCandidateRequest(model="resnet", version=3)
            assert rpc.monitoring.drop_candidate(request).verdict == "dropped"
        with pytest.raises(ConflictError), service.registry.transaction() as tx:
            tx.candidates.save(model, replace(begun, turn=4, verdict="promoted"))
    again = service.client.delete("/v1/models/resnet/monitoring/candidates/2").json()
    assert again["verdict"] == "dropped"
    body = report(service)
    events = [
        (event["version"], event["kind"], event["actor"], event["reason"])
        for event in body["events"]
    ]
    assert events == [
        (3, "dropped", "anonymous", "dropped by request"),
        (2, "dropped", "anonymous", "odd"),
    ]
    assert body["candidate"]["verdict"] == "dropped"
    with service.registry.reading() as tx:
        now = tx.clock()
        assert refit_is_due(tx, model, "stale", now) is None
        assert refit_is_due(tx, model, "stale", now + 200) == "the calibrator is stale"


def test_only_candidates_can_be_dropped(service: Service, rpc: Rpc) -> None:
    """Not a candidate, promoted by evidence, or promoted by a user during the comparison."""
    model = a_champion(service.registry)
    refused(
        grpc.StatusCode.NOT_FOUND,
        lambda: rpc.monitoring.drop_candidate(pb.DropCandidateRequest(model="resnet", version=1)),
    )
    with service.registry.transaction() as tx:
        tx.candidates.add(model, Challenger(1, 1, 0, 1.0, 1.0, 0.05, {}, None, None))
    answer = service.client.delete("/v1/models/resnet/monitoring/candidates/1")
    assert answer.status_code == 409
    assert "has been promoted" in answer.json()["detail"]
    assert report(service)["candidate"]["verdict"] is None
    refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: rpc.monitoring.drop_candidate(pb.DropCandidateRequest(model="resnet")),
    )


def test_candidate_that_is_promoted_meanwhile_is_not_dropped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker commits the promotion just before the drop; the caller learns it."""
    model = a_champion(service.registry)
    begun = Challenger(1, 2, 3, 1.0, 1.0, 0.05, {}, None, None)
    with service.registry.transaction() as tx:
        tx.candidates.add(model, begun)
        tx.aliases.delete(model, "champion", "anna", force=True)
    drop = Candidates.drop

    def drop_after_promotion(candidates: Candidates, owner: Model, version: int) -> bool:
        candidates.save(owner, replace(begun, turn=4, verdict="promoted", ended_at=2.0))
        return drop(candidates, owner, version)

    monkeypatch.setattr(Candidates, "drop", drop_after_promotion)
    answer = service.client.delete("/v1/models/resnet/monitoring/candidates/1")
    assert answer.status_code == 409
    assert "has been promoted" in answer.json()["detail"]


@pytest.mark.both_databases
def test_logits_are_sampled_from_every_protocol(ready: Service, rpc: Rpc) -> None:
    """REST, gRPC and the Open Inference Protocol sample rows with ids if the model enables it."""
    logits = np.random.default_rng(0).normal(0, 3, (5, 4)).astype(np.float32)
    state = ready.client.app.state.recalib
    captures = state.calibrators.traffic.captures

    def ask() -> None:
        ready.calibrate(logits)
        ready.calibrate(logits, ids="0")
        tensor = {"name": "logits", "datatype": "FP32", "shape": [5, 4], "data": logits.tolist()}
        outputs = [{"name": "probabilities"}, {"name": "prediction_ids"}]
        body = {"inputs": [tensor], "outputs": outputs}
        assert ready.client.post("/v2/models/digits/infer", json=body).is_success
        matrix = pb.Matrix(rows=5, classes=4, raw=logits.tobytes())
        rpc.calibration.calibrate(pb.CalibrateRequest(model="digits", matrix=matrix, ids=1))

    ask()
    assert write_captures(ready.registry, captures, 0.0) == 0
    answer = ready.client.put("/v1/models/digits/monitoring/settings", json={"capture": 1.0})
    assert answer.is_success
    assert flush(ready.registry, state.calibrators.traffic)
    ask()
    assert write_captures(ready.registry, captures, 0.0) == 1
    assert report(ready, "digits")["captured_rows"] == 15
