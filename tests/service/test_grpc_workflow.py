"""The workflow over gRPC: what differs from REST, such as uploads, matrices and streams.

Plain RPCs call the endpoints of REST: `test_same_refusals.py`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest
import scipy.special
from numpy.typing import NDArray

import recalib
from recalib.calibrator import Calibrator
from recalib.fitting.row_digests import encode_digests, row_digests
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.rpc import method_name
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.documented import operations
from tests.service.stubs import SERVICES, Rpc, refused, violations

pytestmark = pytest.mark.sqlite_only


def pieces(body: bytes, size: int = 10_000, **header: Any) -> Iterator[pb.UploadDatasetRequest]:
    usual = {"model": "digits", "name": "validation", "content_type": "application/x-npz"}
    yield pb.UploadDatasetRequest(header=pb.UploadHeader(**{**usual, **header}))
    for start in range(0, len(body), size):
        yield pb.UploadDatasetRequest(chunk=body[start : start + size])


def matrix(logits: Any, raw: bool = True) -> pb.Matrix:
    array = np.asarray(logits, np.float32)
    rows, classes = array.shape
    if raw:
        return pb.Matrix(rows=rows, classes=classes, raw=array.tobytes())
    return pb.Matrix(rows=rows, classes=classes, values=array.reshape(-1).tolist())


def question(logits: Any, **more: Any) -> pb.CalibrateRequest:
    return pb.CalibrateRequest(**{"model": "digits", "matrix": matrix(logits), **more})


def array(answer: pb.CalibrateResponse) -> NDArray[np.float32]:
    probabilities = answer.probabilities
    flat = (
        np.frombuffer(probabilities.raw, "<f4")
        if probabilities.raw
        else np.array(probabilities.values, np.float32)
    )
    return flat.reshape(probabilities.rows, probabilities.classes)


def fitted(rpc: Rpc, service: Service, **options: Any) -> pb.Job:
    usual = {"model": "digits", "dataset": "validation"}
    job = rpc.calibrators.create_calibrator(pb.CreateCalibratorRequest(**{**usual, **options}))
    assert job.state == pb.JOB_STATE_QUEUED
    service.work()
    finished: pb.Job = rpc.jobs.get_job(pb.GetJobRequest(id=job.id))
    assert finished.state == pb.JOB_STATE_SUCCEEDED, finished.error
    return finished


def test_upload_fit_promote_and_calibrate(service: Service, rpc: Rpc, data, tmp_path) -> None:
    logits, labels = data
    names = pb.ClassLabels(labels=["a", "b", "c", "d"])
    model = rpc.models.create_model(pb.CreateModelRequest(name="digits", labels=names))
    assert (model.classes, list(model.labels)) == (4, ["a", "b", "c", "d"])
    assert rpc.models.get_model(pb.GetModelRequest(model="digits")) == model

    body = npz(logits, labels)
    uploaded = rpc.datasets.upload_dataset(pieces(body))
    dataset = uploaded.dataset
    assert (uploaded.created, dataset.rows, dataset.classes) == (True, 600, 4)
    assert dataset.digest == hashlib.sha256(body).hexdigest()
    by_rest = service.client.get("/v1/models/digits/datasets/validation").json()
    assert {name: metric.value for name, metric in dataset.metrics.items()} == {
        name: metric["value"] for name, metric in by_rest["metrics"].items()
    }

    job = fitted(rpc, service, map="temperature", objective="nll")
    assert job.result["version"] == 1
    assert job.result["promoted"] is True
    assert "beats identity" in job.result["reason"]

    answer = rpc.calibration.calibrate(question(logits[:5]))
    local = recalib.fit(logits, labels)
    np.testing.assert_allclose(array(answer), local.predict(logits[:5]), atol=1e-6)
    assert (answer.calibrator.version, answer.calibrator.map) == (1, "temperature")

    request = pb.GetCalibratorRequest(model="digits", version=1)
    card = rpc.calibrators.get_calibrator(request).card
    assert list(card["labels"]) == ["a", "b", "c", "d"]
    assert card["data"]["digest"] == dataset.digest

    parameters = b"".join(c.data for c in rpc.calibrators.get_calibrator_parameters(request))
    (tmp_path / "one.calib").write_bytes(parameters)
    np.testing.assert_array_equal(
        Calibrator.load(tmp_path / "one.calib").parameters["temperature"],
        local.parameters["temperature"],
    )
    graph = b"".join(chunk.data for chunk in rpc.calibrators.get_calibrator_onnx(request))
    session = onnxruntime.InferenceSession(graph)
    (by_graph,) = session.run(None, {"logits": logits[:5].astype(np.float32)})
    np.testing.assert_allclose(by_graph, array(answer), atol=1e-6)


@pytest.mark.parametrize("raw", [True, False])
def test_answers_have_the_encoding_of_the_request(
    ready: Service, rpc: Rpc, data, raw: bool
) -> None:
    logits = data[0][:7].astype(np.float32)
    answer = rpc.calibration.calibrate(question(logits, matrix=matrix(logits, raw)))
    assert bool(answer.probabilities.raw) is raw
    by_rest = ready.calibrate(logits).json()["probabilities"]
    np.testing.assert_allclose(array(answer), by_rest, rtol=1e-6)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_raw_accepts_any_number_type(ready: Service, rpc: Rpc, datatype: str) -> None:
    logits = np.array([[1, -2, 3, 0], [0, 0, 5, 1]], np.float32)
    raw = {
        "FP16": logits.astype("<f2").tobytes(),
        "BF16": (logits.view("<u4") >> 16).astype("<u2").tobytes(),
        "FP32": logits.astype("<f4").tobytes(),
        "FP64": logits.astype("<f8").tobytes(),
    }[datatype]
    sent = pb.Matrix(rows=2, classes=4, raw=raw, datatype=f"DATATYPE_{datatype}")
    answer = rpc.calibration.calibrate(question(logits, matrix=sent))
    expected = ready.calibrate(logits).json()["probabilities"]
    np.testing.assert_allclose(array(answer), expected, rtol=1e-5)


@pytest.mark.parametrize("raw", [True, False])
def test_null_masks_a_class(ready: Service, rpc: Rpc, raw: bool) -> None:
    """Masked classes are −inf."""
    logits = matrix([[1.0, -np.inf, 2.0, -np.inf]], raw)
    row = array(rpc.calibration.calibrate(question([[0]], matrix=logits)))[0]
    assert row[1] == row[3] == 0
    assert row.sum() == pytest.approx(1)


def test_requests_can_declare_probabilities(ready: Service, rpc: Rpc, data) -> None:
    logits = data[0][:5]
    p = scipy.special.softmax(logits, axis=1)
    answer = rpc.calibration.calibrate(question(p, input=pb.INPUT_PROBABILITIES))
    np.testing.assert_allclose(
        array(answer), ready.calibrate(logits).json()["probabilities"], atol=1e-5
    )


@pytest.mark.slow
def test_local_fit_becomes_a_version(ready: Service, rpc: Rpc) -> None:
    logits, labels = draw(900, 4, 2.0, seed=9)
    local = recalib.fit(logits[:600], labels[:600], "vector")
    rpc.datasets.upload_dataset(pieces(npz(logits[600:], labels[600:]), name="later"))
    digests = encode_digests(row_digests(logits[:600]))
    request = {"dataset": "later", "parameters": local.to_bytes(), "row_digests": digests}
    result = fitted(rpc, ready, **request).result
    assert (result["version"], result["comparison"]["rows"]) == (2, 300)
    answer = rpc.calibration.calibrate(question(logits[:5], calibrator="2"))
    np.testing.assert_allclose(array(answer), local.predict(logits[:5]), atol=1e-6)
    refusal = pb.CreateCalibratorRequest(model="digits", parameters=b"hello")
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibrators.create_calibrator, refusal)
    assert set(violations(error)) == {"parameters"}


def test_calibrator_is_selected_by_version_or_alias(ready: Service, rpc: Rpc, data) -> None:
    fitted(rpc, ready, map="identity", promote=pb.PROMOTE_NEVER)
    rpc.calibrators.set_alias(pb.SetAliasRequest(model="digits", alias="shadow", version=2))
    for selector, version in (("1", 1), ("2", 2), ("shadow", 2), ("champion", 1), ("", 1)):
        answer = rpc.calibration.calibrate(question(data[0][:1], calibrator=selector))
        assert answer.calibrator.version == version


def test_promote_always_promotes_any_result(ready: Service, rpc: Rpc, data) -> None:
    job = fitted(rpc, ready, map="identity", promote=pb.PROMOTE_ALWAYS)
    assert job.result["promoted"] is True
    assert rpc.calibration.calibrate(question(data[0][:1])).calibrator.map == "identity"


def test_options_reach_the_fit(ready: Service, rpc: Rpc) -> None:
    """All numbers of a Struct are doubles; 5.0 is the integer 5, as in JSON."""
    request = pb.CreateCalibratorRequest(map="histogram_binning", promote=pb.PROMOTE_NEVER)
    request.options.update({"bins": 5})
    job = fitted(rpc, ready, map=request.map, options=request.options, promote=request.promote)
    by_rest = ready.client.get(f"/v1/models/digits/calibrators/{job.result['version']:.0f}").json()
    assert by_rest["card"]["options"]["bins"] == 5


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_fits_refuse_numbers_that_are_not_finite(ready: Service, rpc: Rpc, number: float) -> None:
    """The error names the field, of a Struct too."""
    bad = grpc.StatusCode.INVALID_ARGUMENT
    fit = {"model": "digits", "dataset": "validation", "map": "temperature"}
    request = pb.CreateCalibratorRequest(**fit)
    request.resampled.update({"class_weight": [1.0, 2.0, number]})
    assert "resampled" in violations(refused(bad, rpc.calibrators.create_calibrator, request))
    request = pb.CreateCalibratorRequest(**fit, sets="raps", sets_penalty=number)
    assert "sets_penalty" in violations(refused(bad, rpc.calibrators.create_calibrator, request))


def test_datasets_can_hold_probabilities(service: Service, rpc: Rpc, data) -> None:
    logits, labels = data
    service.model()
    file = _npz_of(probabilities=scipy.special.softmax(logits, axis=1), labels=labels)
    answer = rpc.datasets.upload_dataset(pieces(file, input=pb.INPUT_PROBABILITIES))
    assert answer.dataset.input == pb.INPUT_PROBABILITIES


def test_dataset_content_is_the_uploaded_file(service: Service, rpc: Rpc, data) -> None:
    service.model()
    body = npz(*data)
    service.upload(body)
    request = pb.GetDatasetRequest(model="digits", name="validation")
    chunks = rpc.datasets.get_dataset_content(request)
    assert b"".join(chunk.data for chunk in chunks) == body
    assert rpc.datasets.get_dataset(request).media_type == "application/x-npz"
    with pytest.raises(grpc.RpcError, match="dataset 'later' does not exist") as excinfo:
        list(rpc.datasets.get_dataset_content(pb.GetDatasetRequest(model="digits", name="later")))
    assert excinfo.value.code() is grpc.StatusCode.NOT_FOUND


def _npz_of(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_lists_have_pages(service: Service, rpc: Rpc) -> None:
    names = [f"m{i:02}" for i in range(7)]
    for name in names:
        service.model(name)
    listed, cursor = [], ""
    while True:
        page = rpc.models.list_models(pb.ListModelsRequest(limit=3, cursor=cursor))
        listed += [item.name for item in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert listed == names


@pytest.mark.slow
def test_repeated_upload_succeeds_without_effect(service: Service, rpc: Rpc, data) -> None:
    service.model()
    body = npz(*data)
    assert rpc.datasets.upload_dataset(pieces(body)).created is True
    assert rpc.datasets.upload_dataset(pieces(body, size=777)).created is False
    other = refused(
        grpc.StatusCode.ALREADY_EXISTS,
        rpc.datasets.upload_dataset,
        pieces(npz(data[0] + 1, data[1])),
    )
    assert "exists with other data" in other.details()


def test_idempotency_key_makes_a_request_happen_once(service: Service, rpc: Rpc, data) -> None:
    """A repeated request with the same key has no effect, over REST or gRPC."""
    key = (("idempotency-key", "k1"),)
    request = pb.CreateModelRequest(name="digits", classes=4)
    first = rpc.models.create_model(request, metadata=key)
    assert rpc.models.create_model(request, metadata=key) == first
    by_rest = service.client.post(
        "/v1/models", json={"name": "digits", "classes": 4}, headers=dict(key)
    )
    assert by_rest.status_code == 201
    other = pb.CreateModelRequest(name="digits", classes=5)
    refused(grpc.StatusCode.FAILED_PRECONDITION, rpc.models.create_model, other, metadata=key)
    refused(grpc.StatusCode.ALREADY_EXISTS, rpc.models.create_model, other)
    long = (("idempotency-key", "k" * 256),)
    refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.create_model, other, metadata=long)
    service.upload(npz(*data))
    fit = pb.CreateCalibratorRequest(model="digits", dataset="validation")
    jobs = {rpc.calibrators.create_calibrator(fit, metadata=key).id for _ in range(3)}
    assert len(jobs) == 1
    assert len(rpc.jobs.list_jobs(pb.ListJobsRequest()).items) == 1


def test_stream_returns_one_answer_per_message(ready: Service, rpc: Rpc, data) -> None:
    """One answer for each message, in order; each message can have the size of one request."""
    logits = data[0][:500].astype(np.float32)
    parts = np.split(logits, 10)
    first = question(parts[0])
    rest = [pb.CalibrateRequest(matrix=matrix(part)) for part in parts[1:]]
    answers = list(rpc.calibration.calibrate_stream(iter([first, *rest])))
    assert len(answers) == 10
    probabilities = np.concatenate([array(answer) for answer in answers])
    expected = np.concatenate([ready.calibrate(part).json()["probabilities"] for part in parts])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)


def test_stream_uses_one_version(ready: Service, rpc: Rpc, data) -> None:
    """A promotion during a stream takes effect in the next stream."""
    fitted(rpc, ready, map="identity", promote=pb.PROMOTE_NEVER)

    def asking() -> Iterator[pb.CalibrateRequest]:
        yield question(data[0][:2])
        change = pb.SetAliasRequest(model="digits", alias="champion", version=2)
        rpc.calibrators.set_alias(change)
        yield question(data[0][2:4])

    versions = [answer.calibrator.version for answer in rpc.calibration.calibrate_stream(asking())]
    assert versions == [1, 1]
    assert rpc.calibration.calibrate(question(data[0][:1])).calibrator.version == 2


def test_stream_cannot_change_its_calibrator(ready: Service, rpc: Rpc, data) -> None:
    questions = [question(data[0][:2]), question(data[0][:2], calibrator="1")]
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate_stream, iter(questions)
    )
    assert error.details().startswith("calibrator: found '1'")


def test_late_labels_are_accepted(ready: Service, rpc: Rpc, data) -> None:
    """Labels refer to predictions by id; each label has an outcome."""
    answer = rpc.calibration.calibrate(question(data[0][:3], ids=1))
    first, second, third = answer.prediction_ids
    assert not rpc.calibration.calibrate(question(data[0][:3])).prediction_ids
    labels = [
        pb.LateLabel(prediction_id=first, index=2),
        pb.LateLabel(prediction_id=second, index=1),
        pb.LateLabel(prediction_id=first, index=2),
        pb.LateLabel(prediction_id=second, index=0),
        pb.LateLabel(prediction_id=third, name="nothing"),
        pb.LateLabel(prediction_id="x", index=0),
    ]
    labelled = rpc.labels.add_labels(pb.AddLabelsRequest(model="digits", labels=labels))
    statuses = [pb.LabelStatus.Name(item.status) for item in labelled.items]
    assert [status.removeprefix("LABEL_STATUS_") for status in statuses] == [
        "ACCEPTED", "ACCEPTED", "DUPLICATE", "CONFLICT", "INVALID", "INVALID",
    ]  # fmt: skip
    counts = labelled.counts
    assert (counts.accepted, counts.duplicate, counts.conflict, counts.invalid) == (2, 1, 1, 2)
    assert "labelled 1 before" in labelled.items[3].reason
    bad = grpc.StatusCode.INVALID_ARGUMENT
    unsaid = pb.AddLabelsRequest(model="digits", labels=[pb.LateLabel(prediction_id=first)])
    assert "labels[0].label" in violations(refused(bad, rpc.labels.add_labels, unsaid))
    for share in (-0.1, 1.1, np.nan):
        error = refused(bad, rpc.calibration.calibrate, question(data[0][:3], ids=share))
        assert "ids" in violations(error)


def test_every_operation_of_rest_is_an_rpc(service: Service) -> None:
    """The only additional RPCs are the streams."""
    rpcs = {method_name(method.name) for service in SERVICES.values() for method in service.methods}
    rest = {
        operation["operationId"]
        for path, verbs in service.client.app.openapi()["paths"].items()
        for operation in verbs.values()
        if path.startswith("/v1/")
    }
    assert rpcs == rest | {"calibrate_stream", "stream_events"}
    assert rest <= set(operations(service.client.app.openapi()))
