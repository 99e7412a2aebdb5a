"""Monitoring settings and segments of models, over REST and gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from recalib.registry import MonitoringSettings
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from service.monitoring.flush import flush
from tests.registry.scenes import labels_between
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_grpc_workflow import matrix

pytestmark = pytest.mark.sqlite_only

SETTINGS = {
    "alpha": 0.01,
    "segments": ["eu", "us"],
    "classes": ["2", "0"],
    "capture": 0.5,
    "refit": "manual",
    "adaptation": "shadow",
}


def declare(service: Service, **settings: Any) -> Any:
    return service.client.put("/v1/models/digits/monitoring/settings", json=settings)


def test_settings_are_declared_and_changed(service: Service) -> None:
    service.model()
    usual = service.client.get("/v1/models/digits").json()["monitoring"]
    assert usual == MonitoringSettings().to_dict()
    answer = declare(service, **SETTINGS)
    assert answer.status_code == 200
    assert answer.json()["monitoring"] == usual | SETTINGS
    assert service.client.get("/v1/models/digits").json()["monitoring"] == usual | SETTINGS
    body = {"name": "born", "classes": 3, "monitoring": SETTINGS}
    assert service.client.post("/v1/models", json=body).json()["monitoring"] == usual | SETTINGS


def test_settings_over_grpc(service: Service, rpc: Rpc) -> None:
    """Unset fields have the defaults of REST; enumerations have the values of REST."""
    message = pb.MonitoringSettings(
        alpha=0.01,
        segments=["eu", "us"],
        classes=["2", "0"],
        capture=0.5,
        refit=pb.REFIT_MANUAL,
        adaptation=pb.ADAPTATION_SHADOW,
    )
    created = rpc.models.create_model(
        pb.CreateModelRequest(name="digits", classes=4, monitoring=message)
    )
    assert (created.monitoring.alpha, created.monitoring.refit) == (0.01, pb.REFIT_MANUAL)
    assert created.monitoring.objective == MonitoringSettings().objective
    usual = MonitoringSettings().to_dict()
    assert service.client.get("/v1/models/digits").json()["monitoring"] == usual | SETTINGS
    message.segments.append("asia")
    message.promote = pb.PROMOTE_CANDIDATE_MANUAL
    message.selection_ratio = 1.5
    changed = rpc.monitoring.set_monitoring(
        pb.SetMonitoringRequest(model="digits", settings=message)
    )
    assert list(changed.monitoring.segments) == ["eu", "us", "asia"]
    assert changed.monitoring.promote == pb.PROMOTE_CANDIDATE_MANUAL
    assert changed.monitoring.selection_ratio == 1.5
    message.alpha = 2
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.monitoring.set_monitoring,
        pb.SetMonitoringRequest(model="digits", settings=message),
    )
    assert list(violations(error)) == ["alpha"]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"alpha": 0}, "alpha"),
        ({"objective": "low"}, "objective"),
        ({"selection_ratio": 0.5}, "selection_ratio"),
        ({"least_labels": 2.5}, "least_labels"),
        ({"window_labels": 1}, "window_labels"),
        ({"segments": ["eu", "eu"]}, "segments"),
        ({"segments": ["a b"]}, "segments[0]"),
        ({"classes": ["cat"]}, "classes"),
        ({"classes": "all"}, "classes"),
        ({"classes": ["1", "1"]}, "classes"),
        ({"promote": True}, "promote"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
    ids=str,
)
def test_invalid_settings_are_rejected(shared: Service, bad: dict[str, Any], field: str) -> None:
    answer = declare(shared, **bad)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_segments_can_only_be_appended(service: Service) -> None:
    service.model()
    assert declare(service, segments=["eu"]).status_code == 200
    answer = declare(service, segments=["us", "eu"])
    assert answer.status_code == 409
    assert "can only be appended" in answer.json()["detail"]
    assert declare(service, segments=["eu", "us"]).status_code == 200


@pytest.mark.both_databases
def test_segments_are_counted_and_stored_with_labels(ready: Service, rpc: Rpc) -> None:
    """Over every protocol; an undeclared segment counts as no segment."""
    logits = np.random.default_rng(0).normal(0, 3, (3, 4)).astype(np.float32)
    assert declare(ready, segments=["eu", "us"]).status_code == 200
    state = ready.client.app.state.recalib
    state.calibrators.load("digits")
    state.calibrators.traffic.declare({state.calibrators.get("digits").number: MonitoringSettings(
        segments=("eu", "us")
    )})  # fmt: skip
    calibrated = ready.calibrate(logits, segment="us").json()
    ready.calibrate(logits[:1], segment="mars")
    ready.calibrate(logits[:1], segment="eu", ids="0")
    tensor = {"name": "logits", "datatype": "FP32", "shape": [3, 4], "data": logits.tolist()}
    body = {"inputs": [tensor], "parameters": {"segment": "eu"}}
    assert ready.client.post("/v2/models/digits/infer", json=body).is_success
    body["parameters"] = {"segment": 7}  # type: ignore[dict-item]
    assert ready.client.post("/v2/models/digits/infer", json=body).status_code == 400
    request = pb.CalibrateRequest(model="digits", matrix=matrix(logits), segment="us", ids=1)
    (first, *_) = rpc.calibration.calibrate(request).prediction_ids
    question = v2.ModelInferRequest(model_name="digits", raw_input_contents=[logits.tobytes()])
    question.inputs.add(name="logits", datatype="FP32", shape=[3, 4])
    question.parameters["segment"].string_param = "us"
    rpc.v2.model_infer(question)
    labels = [(prediction_id, 1) for prediction_id in (*calibrated["prediction_ids"], first)]
    items = [{"prediction_id": prediction_id, "label": label} for prediction_id, label in labels]
    answer = ready.client.post("/v1/models/digits/labels", json=items)
    assert answer.json()["counts"]["accepted"] == 4
    assert flush(ready.registry, state.calibrators.traffic)
    with ready.registry.reading() as tx:
        model = tx.models.get("digits")
        counted = tx.traffic.between(model, 1, 0, 1e11)
        stored = labels_between(tx, model, 1, 0, 1e11)
    assert [label.segment for label in stored] == [2] * 4
    totals = dict.fromkeys(range(3), 0)
    for count in counted:
        totals[count.segment] += count.predictions
    assert totals == {0: 1, 1: 1 + 3, 2: 3 + 3 + 3}


def test_adaptation_needs_logits_and_one_class_a_row(service: Service) -> None:
    service.model()
    answer = declare(service, adaptation="shadow")
    assert answer.status_code == 422
    assert "shadow with capture 0" in answer.text
    body = {"name": "tags", "classes": 3, "task": "multilabel"}
    assert service.client.post("/v1/models", json=body).is_success
    settings = {"adaptation": "shadow", "capture": 0.1}
    url = "/v1/models/tags/monitoring/settings"
    for refused_answer in (
        service.client.put(url, json=settings),
        service.client.post("/v1/models", json={**body, "name": "more", "monitoring": settings}),
    ):
        assert refused_answer.status_code == 422
        assert "a multilabel row has no class shares" in refused_answer.text
