"""Monitoring of multilabel models: observations, one drawn label of each row, states."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from sqlalchemy import update

import recalib
from recalib import Calibrator
from recalib.registry import Model, tables
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_uploaded_calibrators import upload_json
from training.monitoring_job import watch
from training.refit_job import refit_is_due

pytestmark = pytest.mark.sqlite_only

NAMES = ["red", "round", "ripe"]
URL = "/v1/models/tagger"


def draw(rows: int, seed: int, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds and labels (N, 3) that occur together; above 1 the log-odds are too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (rows, 3)).astype(np.float32)
    labels = rng.random((rows, 1)) < 1 / (1 + np.exp(-z))
    return z * np.float32(sharpness), labels


@pytest.fixture
def champion(service: Service) -> Calibrator:
    """The champion of the multilabel model `tagger`, the identity."""
    body = {"name": "tagger", "classes": NAMES, "task": "multilabel"}
    assert service.client.post("/v1/models", json=body).status_code == 201
    fitted = recalib.fit(*draw(300, 0), "identity", task="multilabel")
    service.client.post(f"{URL}/calibrators", json=upload_json(fitted, promote=True))
    service.work()
    return fitted


def body(rows: int = 20, *, ago: float = 60.0, sharpness: float = 1.0) -> dict[str, Any]:
    logits, labels = draw(rows, 5, sharpness)
    times = (time.time() - ago + np.arange(rows) / 1000).tolist()
    present = [np.flatnonzero(row).tolist() for row in labels]
    return {"logits": logits.tolist(), "labels": present, "times": times}


def statuses(service: Service, sent: dict[str, Any]) -> list[str]:
    answer = service.client.post(f"{URL}/observations", json=sent)
    assert answer.status_code == 200, answer.text
    return [item["status"] for item in answer.json()["items"]]


def model_of(service: Service) -> Model:
    with service.registry.reading() as tx:
        return tx.models.get("tagger")


@pytest.mark.both_databases
def test_row_is_stored_with_one_drawn_label(
    service: Service, champion: Calibrator, rpc: Rpc
) -> None:
    """With the label's probability and whether it is there; a repeat over gRPC is a duplicate."""
    sent = body()
    assert set(statuses(service, sent)) == {"accepted"}
    with service.registry.reading() as tx:
        model = tx.models.get("tagger")
        rows = tx.labels.between(model, 1, 0, 1e11)
        counted = sum(count.predictions for count in tx.traffic.between(model, 1, 0, 1e11))
    assert len(rows) == counted == 20
    assert {row.predicted for row in rows} == {0, 1, 2}
    logits = np.array(sent["logits"], np.float32)
    drawn = np.array([row.predicted for row in rows])
    expected = champion.predict(logits)[np.arange(20), drawn]
    assert [row.confidence for row in rows] == pytest.approx(expected.tolist())
    present = [k in labels for k, labels in zip(drawn, sent["labels"], strict=True)]
    assert [row.label == row.predicted for row in rows] == present
    assert 0 < sum(present) < 20

    matrix = pb.Matrix(rows=20, classes=3, datatype=pb.DATATYPE_FP32, raw=logits.tobytes())
    sets = [pb.LabelSet(names=[NAMES[k] for k in labels]) for labels in sent["labels"]]
    sets[0] = pb.LabelSet(indices={0, 1, 2} - set(sent["labels"][0]))
    request = pb.AddObservationsRequest(
        model="tagger", logits=matrix, label_sets=sets, times=sent["times"]
    )
    answer = rpc.labels.add_observations(request)
    assert (answer.counts.conflict, answer.counts.duplicate) == (1, 19)
    request.labels.append(1)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.labels.add_observations, request)
    assert "labels" in violations(error)


def test_invalid_labels_are_rejected_row_by_row(service: Service, champion: Calibrator) -> None:
    sent = body(6)
    sent["labels"] = [1, ["green"], [3], [0, 1, 0], ["red", 2], []]
    answer = service.client.post(f"{URL}/observations", json=sent).json()
    assert [item["status"] for item in answer["items"]] == ["invalid"] * 4 + ["accepted"] * 2
    reasons = [item.get("reason", "") for item in answer["items"]]
    assert "send a list of the row's labels" in reasons[0]
    assert "none of the model's class labels" in reasons[1]
    assert "the model's classes are 0 to 2" in reasons[2]
    assert "a label twice" in reasons[3]
    refusal = service.client.post(f"{URL}/observations", json={**body(1), "counted": True})
    check(refusal, 422, "counted", "true")


@pytest.mark.both_databases
def test_labels_that_are_too_sure_make_the_version_stale(
    service: Service, champion: Calibrator
) -> None:
    """With watched labels; a calibrated stream of the same size does not. There is no refit."""
    settings = {"classes": ["all"], "least_labels": 100, "maturity_seconds": 3600}
    assert service.client.put(f"{URL}/monitoring/settings", json=settings).status_code == 200
    for sharpness, state in ((1.0, "unverified"), (4.0, "stale")):
        ago = 600.0 if sharpness == 1 else 300.0
        assert set(statuses(service, body(700, ago=ago, sharpness=sharpness))) == {"accepted"}
        with service.registry.transaction() as tx:  # as if the labels had matured
            table = tables.labels
            tx.connection.execute(update(table).values(labelled_at=table.c.predicted_at + 0.5))
            model = tx.models.get("tagger")
            mature = replace(model.monitoring, maturity_seconds=1.0, cohort_seconds=1.0)
            model = tx.models.set_monitoring("tagger", mature)
        watch(service.registry, model)
        report = service.client.get(f"{URL}/monitoring").json()
        assert (
            report["state"] in ("fresh", state)
            if state == "unverified"
            else report["state"] == state
        )
        late = replace(model.monitoring, maturity_seconds=3600.0)
        with service.registry.transaction() as tx:
            tx.models.set_monitoring("tagger", late)
    assert report["classes"]["watched"] == 3
    assert report["classes"]["rejected"]
    assert report["candidate"] is None
    with service.registry.reading() as tx:
        assert refit_is_due(tx, model_of(service), "stale", time.time()) is None


def test_settings_are_those_without_refits(service: Service, champion: Calibrator) -> None:
    place = f"{URL}/monitoring/settings"
    changed = service.client.put(place, json={"tolerance": 0.01, "segments": ["eu"]})
    assert (changed.status_code, changed.json()["monitoring"]["tolerance"]) == (200, 0.01)
    for field, value in {"capture": 0.5, "refit_every_seconds": 3600.0}.items():
        check(service.client.put(place, json={field: value}), 422, field, str(value))
        model = {"name": "t", "classes": 3, "task": "multilabel", "monitoring": {field: value}}
        check(service.client.post("/v1/models", json=model), 422, field, str(value))
