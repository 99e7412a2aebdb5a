"""A model without a champion answers with the classifier's own probabilities, and says so."""

from __future__ import annotations

import io
import logging

import numpy as np
import pyarrow as pa
import pytest
import scipy.special

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from tests.fitting.conftest import draw
from tests.service.conftest import NPY, Service, npy, npz
from tests.service.stubs import Rpc

_ROWS = np.array([[2.0, 0.0, -1.0, 0.5], [0.0, 0.0, 3.0, 0.0]], np.float32)
_EXPECTED = scipy.special.softmax(_ROWS, axis=1)
_CALIBRATE = "/v1/models/digits/calibrate"
_V2_INPUT = {"name": "logits", "shape": [2, 4], "datatype": "FP32", "data": _ROWS.ravel().tolist()}


def test_new_model_answers_with_its_own_probabilities(service: Service) -> None:
    service.model()
    answer = service.calibrate(_ROWS).json()
    np.testing.assert_allclose(answer["probabilities"], _EXPECTED, rtol=1e-6)
    mark = {"version": None, "map": "identity", "uncalibrated": True}
    assert answer["calibrator"] == mark
    assert answer["prediction_ids"] == [None, None]


def test_every_format_is_marked(service: Service) -> None:
    service.model()
    for accept in ("application/x-npy", "application/x-npz", "application/vnd.apache.arrow.stream"):
        headers = NPY | {"Accept": accept}
        response = service.client.post(_CALIBRATE, content=npy(_ROWS), headers=headers)
        assert response.headers["recalib-calibrator"] == "uncalibrated"
    schema = pa.ipc.open_stream(response.content).schema
    assert b'"uncalibrated":true' in schema.metadata[b"calibrator"]
    npz_headers = NPY | {"Accept": "application/x-npz"}
    response = service.client.post(_CALIBRATE, content=npy(_ROWS), headers=npz_headers)
    assert np.load(io.BytesIO(response.content))["prediction_ids"].tolist() == [b"", b""]
    infer = service.client.post("/v2/models/digits/infer", json={"inputs": [_V2_INPUT]}).json()
    assert infer["parameters"] == {"uncalibrated": True}
    assert "model_version" not in infer
    assert service.client.get("/v2/models/digits").json()["versions"] == []
    assert service.client.get("/v2/models/digits/ready").json()["ready"]


def test_grpc_answers_are_marked(service: Service, rpc: Rpc) -> None:
    service.model()
    request = pb.CalibrateRequest(
        model="digits", matrix=pb.Matrix(rows=2, classes=4, values=_ROWS.ravel()), ids=1.0
    )
    stream = list(rpc.calibration.calibrate_stream(iter([request, request])))
    for answer in (rpc.calibration.calibrate(request), *stream):
        assert answer.calibrator == pb.Calibrated(map="identity", uncalibrated=True)
        assert list(answer.prediction_ids) == ["", ""]
    tensor = v2.ModelInferRequest.InferInputTensor(name="logits", datatype="FP32", shape=[2, 4])
    tensor.contents.fp32_contents.extend(_ROWS.ravel().tolist())
    infer = rpc.v2.model_infer(v2.ModelInferRequest(model_name="digits", inputs=[tensor]))
    assert infer.parameters["uncalibrated"].bool_param
    assert infer.model_version == ""


def test_rows_belong_to_no_version(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """No traffic, no test, no alert: the metric and the log line have the mark."""
    service.model()
    with caplog.at_level(logging.INFO, "service.serving.loaded_calibrators"):
        service.calibrate(_ROWS)
    assert [record.action for record in caplog.records] == ["uncalibrated"]  # type: ignore[attr-defined]
    assert not service.client.app.state.recalib.calibrators.traffic.take().traffic  # type: ignore[attr-defined]
    lines = service.client.get("/metrics").text.splitlines()
    sample = 'recalib_calibrated_rows_total{calibrator="uncalibrated",model="digits"}'
    assert any(line.startswith(sample) for line in lines)
    monitoring = service.client.get("/v1/models/digits/monitoring").json()
    assert (monitoring["version"], monitoring["state"]) == (None, "unverified")
    rows = {"logits": _ROWS.tolist(), "labels": [0, 2], "times": [0.0, 0.0]}
    assert service.client.post("/v1/models/digits/observations", json=rows).status_code == 409


def test_setting_keeps_the_refusal(service: Service) -> None:
    """It can change at any time, also while the model serves."""
    body = {"name": "digits", "classes": 4, "serve_uncalibrated": False}
    assert service.client.post("/v1/models", json=body).json()["serve_uncalibrated"] is False
    assert service.calibrate(_ROWS).status_code == 409
    for value, status in ((True, 200), (False, 409)):
        change = {"serve_uncalibrated": value}
        assert service.client.patch("/v1/models/digits", json=change).status_code == 200
        assert service.calibrate(_ROWS).status_code == status


def test_fit_replaces_the_identity_by_evidence(service: Service) -> None:
    """Calibrated data keep it, and the job says why; overconfident logits get a version."""
    service.model()
    service.upload(npz(*draw(600, 4, 1.0)), "calibrated")
    service.calibrate(_ROWS)
    job = service.fitted(dataset="calibrated")
    assert job["result"]["promoted"] is False
    assert "does not beat identity" in job["result"]["reason"]
    service.client.app.state.recalib.calibrators.refresh()  # type: ignore[attr-defined]
    assert service.calibrate(_ROWS).json()["calibrator"]["uncalibrated"] is True
    service.upload(npz(*draw(600, 4, 3.0, seed=1)), "overconfident")
    assert service.fitted(dataset="overconfident")["result"]["promoted"] is True
    service.client.app.state.recalib.calibrators.refresh()  # type: ignore[attr-defined]
    answer = service.calibrate(_ROWS).json()
    assert answer["calibrator"] == {"version": 2, "map": "temperature"}
    assert all(answer["prediction_ids"])


def test_batch_of_a_model_without_a_champion(service: Service) -> None:
    service.model()
    service.upload(npz(*draw(20, 4, 1.0)))
    job = service.client.post("/v1/models/digits/batches", json={"dataset": "validation"}).json()
    service.work()
    batch = service.client.get(f"/v1/models/digits/batches/{job['id']}").json()
    assert (batch["state"], batch["version"], batch["uncalibrated"]) == ("succeeded", None, True)
    body = {"dataset": "validation", "version": "shadow"}
    assert service.client.post("/v1/models/digits/batches", json=body).status_code == 404


def test_version_of_a_new_model_is_unknown(service: Service) -> None:
    service.model()
    for selector in ("1", "shadow"):
        assert service.calibrate(_ROWS, calibrator=selector).status_code == 404
