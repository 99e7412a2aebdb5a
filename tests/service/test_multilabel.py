"""Models of independent labels: published, served by every interface, and what they refuse."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import recalib
from recalib import Calibrator
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.fitting.row_digests import encode_digests, row_digests
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
    return fit(_SCORES, _LABELS, map, task="multilabel", measure=True)


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
    names = [tensor["name"] for tensor in metadata["outputs"]]
    assert names == ["probabilities", "prediction_ids"]
    tensor = {"name": "logits", "shape": [4, 3], "datatype": "FP32", "data": _ROWS.tolist()}
    v2 = tagger.client.post("/v2/models/tagger/infer", json={"inputs": [tensor]}).json()
    np.testing.assert_allclose(v2["outputs"][0]["data"], expected.reshape(-1), atol=1e-6)
    assert [output["name"] for output in v2["outputs"]] == ["probabilities"]


def test_version_without_data_is_promoted_by_request_only(tagger: Service) -> None:
    result = _published(tagger)
    assert (result["version"], result["promoted"], result["warnings"]) == (2, False, [])
    assert "the request names no data set to compare on" in result["reason"]
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
    answer = client.post("/v1/training-runs", json=recipe)
    check(answer, 422, "task", "multilabel, the task of model 'tagger'")
    for field, value in {"top_k": 2, "segment": "eu"}.items():
        answer = tagger.calibrate(_ROWS, model="tagger", **{field: value})
        check(answer, 422, field, str(value))
        assert "multilabel" in answer.text


def test_served_rows_without_ids_are_not_counted(tagger: Service) -> None:
    tagger.calibrate(_ROWS, model="tagger")
    counts = tagger.client.app.state.recalib.calibrators.traffic.take()
    assert (counts.traffic, counts.classes) == ([], [])


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
    for field, value in {"top_k": 2, "segment": "eu"}.items():
        call = question(_ROWS, model="tagger", **{field: value})
        assert field in violations(refused(invalid, rpc.calibration.calibrate, call))
    body = npz(_SCORES, _LABELS)
    assert rpc.datasets.upload_dataset(pieces(body, model="tagger")).dataset.rows == 300
    rpc.calibrators.create_calibrator(
        pb.CreateCalibratorRequest(model="tagger", dataset="validation", map="beta")
    )
    service.work()
    version = rpc.calibrators.get_calibrator(pb.GetCalibratorRequest(model="tagger", version=2))
    assert version.dataset == "validation"


def _upload(service: Service, name: str = "val", **options: Any) -> dict[str, Any]:
    body = npz(options.pop("scores", _SCORES), options.pop("labels", _LABELS))
    answer = service.client.put(
        f"{_URL}/datasets/{name}", content=body, headers=NPZ, params=options
    )
    assert answer.status_code == 201, answer.text
    dataset: dict[str, Any] = answer.json()
    return dataset


def _fit(service: Service, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit a calibrator; return the job's result and the card."""
    job = service.client.post(f"{_URL}/calibrators", json={"dataset": "val", **body})
    assert job.status_code == 202, job.text
    service.work()
    result = service.client.get(f"/v1/jobs/{job.json()['id']}").json()["result"]
    version = service.client.get(f"{_URL}/calibrators/{result['version']}").json()
    return result, version["card"]


@pytest.fixture
def unfitted(service: Service) -> Service:
    """A service with a multilabel model without versions."""
    body = {"name": "tagger", "classes": 3, "task": "multilabel"}
    assert service.client.post("/v1/models", json=body).status_code == 201
    return service


def test_uploaded_data_is_measured_as_means_over_labels(unfitted: Service) -> None:
    dataset = _upload(unfitted)
    expected = recalib.evaluate(_LABELS, logits=_SCORES, task="multilabel")
    values = {name: metric["value"] for name, metric in dataset["metrics"].items()}
    assert values == pytest.approx(dict(expected))
    p = 1 / (1 + np.exp(-_SCORES))
    shares = recalib.evaluate(_LABELS, p, task="multilabel")
    uploaded = io.BytesIO()
    np.savez(uploaded, probabilities=p, labels=_LABELS)
    answer = unfitted.client.put(
        f"{_URL}/datasets/p",
        content=uploaded.getvalue(),
        headers=NPZ,
        params={"input": "probabilities"},
    ).json()
    values = {name: metric["value"] for name, metric in answer["metrics"].items()}
    assert values == pytest.approx(dict(shares))
    for labels, place in ((_LABELS[:, 0], "labels"), (_LABELS + 1, "found 2; accepted: 0 or 1")):
        bad = unfitted.client.put(f"{_URL}/datasets/x", content=npz(_SCORES, labels), headers=NPZ)
        assert bad.status_code == 422
        assert place in bad.text


def test_fit_is_promoted_by_the_likelihood_summed_over_labels(unfitted: Service) -> None:
    _upload(unfitted)
    result, card = _fit(unfitted, map="platt")
    local = _fitted()
    answer = unfitted.calibrate(_ROWS, model="tagger").json()
    np.testing.assert_allclose(answer["probabilities"], local.predict(_ROWS), atol=1e-6)
    assert result["promoted"], result
    assert "platt beats identity" in result["reason"]
    assert (card["task"], card["selection"]["rows"]) == ("multilabel", 300)
    before = card["metrics"]["before"]["nll"]["value"]
    # The NLL of the classifier is in sample: it has no fit.
    assert card["selection"]["reference_nll"] == pytest.approx(3 * before)
    assert 3 * card["metrics"]["after"]["nll"]["value"] < card["selection"]["nll"] < 3 * before
    # The same map on the same rows is no better.
    again, card = _fit(unfitted, map="platt")
    assert (again["promoted"], card["selection"]["reference_version"]) == (False, 1)


def test_published_calibrator_is_compared_on_unseen_rows(unfitted: Service) -> None:
    _upload(unfitted)
    half = recalib.fit(_SCORES[:150], _LABELS[:150], "platt", task="multilabel")
    digests = base64.b64encode(encode_digests(row_digests(_SCORES[:150]))).decode()
    body = upload_json(half, dataset="val", row_digests=digests)
    job = unfitted.client.post(f"{_URL}/calibrators", json=body).json()
    unfitted.work()
    result = unfitted.client.get(f"/v1/jobs/{job['id']}").json()["result"]
    assert (result["promoted"], result["comparison"]["rows"]) == (True, 150)
    card = unfitted.client.get(f"{_URL}/calibrators/1").json()["card"]
    assert card["metrics"]["after"]["nll"]["value"] < card["metrics"]["before"]["nll"]["value"]


def test_fits_that_are_not_of_labels_are_refused(unfitted: Service) -> None:
    _upload(unfitted)
    for field, value in {"map": "dirichlet", "objective": "brier", "options": {"knots": 9}}.items():
        answer = unfitted.client.post(f"{_URL}/calibrators", json={"dataset": "val", field: value})
        assert answer.status_code == 422
        assert field.removesuffix("s") in answer.text


def _compared(service: Service, **request: Any) -> dict[str, Any]:
    """Run an evaluation; return it."""
    job = service.client.post(f"{_URL}/evaluations", json=request).json()
    service.work()
    evaluation: dict[str, Any] = service.client.get(f"{_URL}/evaluations/{job['id']}").json()
    assert evaluation["state"] == "succeeded", evaluation["error"]
    return evaluation


@pytest.mark.slow
def test_evaluation_measures_labels_and_means(tagger: Service, rpc: Rpc) -> None:
    """Values are those of the library, over REST and gRPC; a page has pictures of labels."""
    _upload(tagger)
    evaluation = _compared(tagger, dataset="val", versions=["identity", "champion"])
    after = recalib.evaluate(_LABELS, _fitted().predict(_SCORES), task="multilabel", intervals=True)
    before = recalib.evaluate(_LABELS, logits=_SCORES, task="multilabel", intervals=True)
    first, second = evaluation["results"]
    for result, expected in ((first, before), (second, after)):
        assert [label["label"] for label in result["labels"]] == ["red", "round", "ripe"]
        measured = zip(
            [result, *result["labels"]], [expected, *expected.labels.values()], strict=True
        )
        for item, metrics in measured:
            for name, estimate in metrics.items():
                values = {key: getattr(estimate, key) for key in item["metrics"][name]}
                assert item["metrics"][name] == pytest.approx(values)
    assert first["changes"] == first["labels"][0]["changes"] == {}
    assert second["changes"]["nll"]["verdict"] == "better"
    change = second["labels"][2]["changes"]["nll"]["value"]
    metrics = [result["labels"][2]["metrics"]["nll"]["value"] for result in (first, second)]
    assert change == pytest.approx(metrics[1] - metrics[0])
    titles = [picture["title"] for picture in evaluation["pictures"]]
    assert set(titles) == {
        "Labels with the largest error, identity", "Labels with the largest error, version 1"
    }  # fmt: skip
    assert len(titles) == 6
    path = f"{_URL}/evaluations/{evaluation['id']}"
    page = tagger.client.get(f"{path}/report").text
    assert "These are means over 3 labels." in page
    assert "rows per label" in page
    assert page.count("<td>ripe</td>") == 1
    listed = tagger.client.get(f"{_URL}/evaluations").json()["items"]
    assert [result["labels"] for result in listed[0]["results"]] == [[], []]
    message = rpc.evaluations.get_evaluation(
        pb.GetEvaluationRequest(model="tagger", id=evaluation["id"])
    )
    assert message.results[1].labels[2].label == "ripe"
    assert message.results[1].labels[2].changes["nll"].value == change


def test_evaluation_has_no_segments(tagger: Service) -> None:
    _upload(tagger)
    request = {"dataset": "val", "versions": [1], "segments": ["site"]}
    answer = tagger.client.post(f"{_URL}/evaluations", json=request)
    assert answer.status_code == 422
    assert "segments: found a multilabel model; accepted: an upload of one label" in answer.text


@pytest.mark.slow
def test_evaluation_knows_the_rows_of_the_fit(unfitted: Service) -> None:
    _upload(unfitted)
    _fit(unfitted, map="platt", promote=True)
    evaluation = _compared(unfitted, dataset="val", versions=[1])
    assert [result["fitted_rows"] for result in evaluation["results"]] == [300]
    assert len(evaluation["warnings"]) == 1
    assert [label["label"] for label in evaluation["results"][0]["labels"]] == ["0", "1", "2"]


@pytest.mark.parametrize("input", ["logits", "probabilities"])
def test_batch_equals_calibrate(tagger: Service, input: str) -> None:
    """Of a data set and of uploads with and without labels, in which rows have no fixed sum."""
    values = _SCORES if input == "logits" else 1 / (1 + np.exp(-_SCORES))
    expected = _fitted().predict(_SCORES)
    uploads = []
    for arrays in ({input: values, "labels": _LABELS}, {input: values}):
        content = io.BytesIO()
        np.savez(content, **arrays)
        uploads.append(content.getvalue())
    query = {"input": input, "format": "npz"}
    dataset = {"content": uploads[0], "headers": NPZ, "params": {"input": input}}
    assert tagger.client.put(f"{_URL}/datasets/val", **dataset).status_code == 201
    path = f"{_URL}/batches"
    jobs = [
        tagger.client.post(path, json={"dataset": "val", "format": "npz"}),
        *(tagger.client.post(path, content=body, headers=NPZ, params=query) for body in uploads),
    ]
    tagger.work()
    for job in jobs:
        assert job.status_code == 202, job.text
        answer = tagger.client.get(f"{path}/{job.json()['id']}/content")
        probabilities = np.load(io.BytesIO(answer.content))["probabilities"]
        np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    content = io.BytesIO()
    np.savez(content, logits=[[0, -np.inf, 1.0]])
    masked = tagger.client.post(path, content=content.getvalue(), headers=NPZ)
    check(masked, 422, "logits[0][1]", "-inf")


def test_batches_over_grpc(tagger: Service, rpc: Rpc) -> None:
    content = io.BytesIO()
    np.savez(content, probabilities=1 / (1 + np.exp(-_SCORES)))
    header = pb.BatchHeader(
        model="tagger",
        content_type=NPZ["Content-Type"],
        format=pb.BATCH_FORMAT_NPZ,
        input=pb.INPUT_PROBABILITIES,
    )
    messages = [
        pb.CreateBatchRequest(header=header), pb.CreateBatchRequest(chunk=content.getvalue())
    ]  # fmt: skip
    job = rpc.batches.create_batch(iter(messages))
    tagger.work()
    chunks = rpc.batches.get_batch_content(pb.GetBatchRequest(model="tagger", id=job.id))
    answer = np.load(io.BytesIO(b"".join(chunk.data for chunk in chunks)))
    np.testing.assert_allclose(answer["probabilities"], _fitted().predict(_SCORES), atol=1e-6)


@pytest.mark.parametrize("name", LABEL_MAPS)
def test_every_label_map_is_accepted(name: str) -> None:
    fitted = _fitted(name)
    checked = check_parameter_file(fitted.to_bytes(), 3, None, "multilabel")
    np.testing.assert_array_equal(checked.predict(_ROWS), fitted.predict(_ROWS))


_REFUSED: dict[str, tuple[Callable[[], Calibrator], str]] = {
    "another task": (lambda: fit(_SCORES, _LABELS.argmax(axis=1)), "a multiclass calib"),
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
