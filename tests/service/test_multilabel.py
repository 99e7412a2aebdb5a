"""Models of independent labels: published, served by every interface, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import recalib
from recalib import Calibrator
from recalib.errors import InputError
from recalib.maps.labels import LABEL_MAPS
from service.calibrators.parameter_file import check_parameter_file
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2
from tests.service.conftest import NPZ, Service, npz
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_grpc_workflow import array, pieces, question
from tests.service.test_uploaded_calibrators import upload_json, with_card
from tests.training.test_training_job import RECIPE

pytestmark = pytest.mark.sqlite_only

_RNG = np.random.default_rng(5)
_SCORES = _RNG.normal(0, 2, (300, 3))
_LABELS = _RNG.random((300, 3)) < 1 / (1 + np.exp(1 - _SCORES / 2))
_ROWS = _SCORES[:4].astype(np.float32)
_URL = "/v1/models/tagger"


def _fitted(map: str = "platt") -> Calibrator:
    return recalib.fit(_SCORES, _LABELS, map, task="multilabel", measure=True)


def _published(service: Service, **options: Any) -> dict[str, Any]:
    """Publish a calibrator; return the job's result."""
    job = service.client.post(f"{_URL}/calibrators", json=upload_json(_fitted(), **options))
    assert job.status_code == 202, job.text
    service.work()
    result: dict[str, Any] = service.client.get(f"/v1/jobs/{job.json()['id']}").json()["result"]
    return result


@pytest.fixture
def tagger(service: Service) -> Service:
    """A service with a multilabel model and its champion."""
    body = {"name": "tagger", "classes": ["red", "round", "ripe"], "task": "multilabel"}
    model = service.client.post("/v1/models", json=body)
    assert (model.status_code, model.json()["task"]) == (201, "multilabel")
    assert _published(service, promote=True)["promoted"] is True
    return service


def test_rest_and_v2_return_independent_probabilities(tagger: Service) -> None:
    expected = _fitted().predict(_ROWS)
    answer = tagger.calibrate(_ROWS, model="tagger").json()
    assert "prediction_ids" not in answer
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)
    assert np.abs(np.sum(answer["probabilities"], axis=1) - 1).max() > 0.1
    raw = (1 / (1 + np.exp(-_ROWS))).tolist()
    by_odds = tagger.client.post(
        f"{_URL}/calibrate", json={"probabilities": raw}, params={"input": "probabilities"}
    )
    np.testing.assert_allclose(by_odds.json()["probabilities"], expected, atol=1e-5)
    metadata = tagger.client.get("/v2/models/tagger").json()
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["probabilities"]
    tensor = {"name": "logits", "shape": [4, 3], "datatype": "FP32", "data": _ROWS.tolist()}
    v2 = tagger.client.post("/v2/models/tagger/infer", json={"inputs": [tensor]}).json()
    np.testing.assert_allclose(v2["outputs"][0]["data"], expected.reshape(-1), atol=1e-6)
    outputs = [{"name": "prediction_ids"}]
    ids = tagger.client.post(
        "/v2/models/tagger/infer", json={"inputs": [tensor], "outputs": outputs}
    )
    assert ids.status_code == 400
    assert "multilabel" in ids.text


def test_version_is_promoted_by_request_only(tagger: Service) -> None:
    result = _published(tagger)
    assert (result["version"], result["promoted"], result["warnings"]) == (2, False, [])
    assert "multilabel model are not compared" in result["reason"]
    body = upload_json(_fitted(), dataset="x")
    check(tagger.client.post(f"{_URL}/calibrators", json=body), 422, "dataset", "a value")
    alias = tagger.client.put(f"{_URL}/aliases/champion", json={"version": 2}).json()
    assert (alias["version"], alias["warnings"]) == (2, [])
    card = tagger.client.get(f"{_URL}/calibrators/2").json()["card"]
    assert (card["task"], card["metrics"], card["labels"]) == (
        "multilabel", {}, ["red", "round", "ripe"],
    )  # fmt: skip
    assert card["claimed"]["metrics"]["after"]["nll"]["value"] > 0


def test_other_operations_are_refused_and_name_the_task(tagger: Service) -> None:
    client = tagger.client
    recipe = {**RECIPE, "calibrate": {"model": "tagger"}}
    task = [
        client.put(f"{_URL}/datasets/x", content=npz(_SCORES, _LABELS), headers=NPZ),
        client.post(f"{_URL}/calibrators", json={"dataset": "x"}),
        client.put(f"{_URL}/monitoring/settings", json={"tolerance": 0.01}),
        client.post(f"{_URL}/monitoring/refit"),
        client.post(f"{_URL}/labels", json=[{"prediction_id": "a", "label": 0}]),
        client.post("/v1/training-runs", json=recipe),
    ]
    for answer in task:
        check(answer, 422, "task", "multilabel, the task of model 'tagger'")
    for field, value in {"top_k": 2, "ids": 0.5, "segment": "eu"}.items():
        answer = tagger.calibrate(_ROWS, model="tagger", **{field: value})
        check(answer, 422, field, str(value))
        assert "multilabel" in answer.text
    body = {"name": "t", "classes": 3, "task": "multilabel", "monitoring": {"alpha": 0.1}}
    check(client.post("/v1/models", json=body), 422, "monitoring", "settings")
    report = client.get(f"{_URL}/monitoring").json()
    assert (report["state"], report["reason"]) == (
        "unverified", "multilabel models are not monitored",
    )  # fmt: skip


def test_served_rows_are_not_counted_and_not_monitored(tagger: Service) -> None:
    tagger.calibrate(_ROWS, model="tagger")
    counts = tagger.client.app.state.recalib.calibrators.traffic.take()
    assert (counts.traffic, counts.classes) == ([], [])
    with tagger.registry.reading() as tx:
        assert tx.monitors.champions_without_monitor() == []


def test_grpc_creates_and_serves_a_multilabel_model(service: Service, rpc: Rpc) -> None:
    request = pb.CreateModelRequest(name="tagger", classes=3, task=pb.TASK_MULTILABEL)
    assert rpc.models.create_model(request).task == pb.TASK_MULTILABEL
    assert rpc.models.list_models(pb.ListModelsRequest()).items[0].task == pb.TASK_MULTILABEL
    upload = pb.CreateCalibratorRequest(
        model="tagger", parameters=_fitted().to_bytes(), promote=pb.PROMOTE_ALWAYS
    )
    rpc.calibrators.create_calibrator(upload)
    service.work()
    answer = rpc.calibration.calibrate(question(_ROWS, model="tagger"))
    np.testing.assert_allclose(array(answer), _fitted().predict(_ROWS), atol=1e-6)
    tensor = inference_pb2.ModelInferRequest.InferInputTensor(
        name="logits", datatype="FP32", shape=[4, 3]
    )
    infer = inference_pb2.ModelInferRequest(
        model_name="tagger", inputs=[tensor], raw_input_contents=[_ROWS.tobytes()]
    )
    content = rpc.v2.model_infer(infer).raw_output_contents[0]
    np.testing.assert_array_equal(np.frombuffer(content, "<f4").reshape(4, 3), array(answer))
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for field, value in {"top_k": 2, "ids": 0.5, "segment": "eu"}.items():
        call = question(_ROWS, model="tagger", **{field: value})
        assert field in violations(refused(invalid, rpc.calibration.calibrate, call))
    body = npz(_SCORES, _LABELS)
    error = refused(invalid, rpc.datasets.upload_dataset, pieces(body, model="tagger"))
    assert "task" in violations(error)


@pytest.mark.parametrize("name", LABEL_MAPS)
def test_every_label_map_is_accepted(name: str) -> None:
    fitted = _fitted(name)
    checked = check_parameter_file(fitted.to_bytes(), 3, None, "multilabel")
    np.testing.assert_array_equal(checked.predict(_ROWS), fitted.predict(_ROWS))


_REFUSED: dict[str, tuple[Callable[[], Calibrator], str]] = {
    "another task": (lambda: recalib.fit(_SCORES, _LABELS.argmax(axis=1)), "a multiclass calib"),
    "another objective": (lambda: with_card(_fitted(), objective="brier"), "objective 'brier'"),
    "an unknown option": (lambda: with_card(_fitted(), objective_options={"x": 1}), "options.x"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_other_files_are_refused(name: str) -> None:
    create, reason = _REFUSED[name]
    with pytest.raises(InputError) as raised:
        check_parameter_file(create().to_bytes(), 3, None, "multilabel")
    assert reason in raised.value.found


def test_multilabel_file_is_refused_by_a_multiclass_model() -> None:
    with pytest.raises(InputError, match="one of task multiclass, as the model has"):
        check_parameter_file(_fitted().to_bytes(), 3, None)
