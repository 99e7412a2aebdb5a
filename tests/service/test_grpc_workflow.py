"""Upload, fit, promote, calibrate: over gRPC, on both databases; by the names of REST's tests."""

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
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.rpc import method_name
from tests.service.conftest import Service, npz
from tests.service.documented import operations
from tests.service.stubs import OWN, Rpc, refused, violations


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
    found = answer.probabilities
    flat = np.frombuffer(found.raw, "<f4") if found.raw else np.array(found.values, np.float32)
    return flat.reshape(found.rows, found.classes)


def fitted(rpc: Rpc, service: Service, **wanted: Any) -> pb.Job:
    usual = {"model": "digits", "dataset": "validation"}
    job = rpc.calibrators.create_calibrator(pb.CreateCalibratorRequest(**{**usual, **wanted}))
    assert job.state == pb.JOB_STATE_QUEUED
    service.work()
    found: pb.Job = rpc.jobs.get_job(pb.GetJobRequest(id=job.id))
    assert found.state == pb.JOB_STATE_SUCCEEDED, found.error
    return found


def test_the_whole_loop(service: Service, rpc: Rpc, data, tmp_path) -> None:
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
    assert {name: one.value for name, one in dataset.metrics.items()} == {
        name: one["value"] for name, one in by_rest["metrics"].items()
    }

    job = fitted(rpc, service, map="temperature", objective="nll")
    assert job.result["version"] == 1
    assert job.result["promoted"] is True
    assert "beats identity" in job.result["reason"]

    answer = rpc.calibration.calibrate(question(logits[:5]))
    local = recalib.fit(logits, labels)
    np.testing.assert_allclose(array(answer), local.predict(logits[:5]), atol=1e-6)
    assert (answer.calibrator.version, answer.calibrator.map) == (1, "temperature")

    one = pb.GetCalibratorRequest(model="digits", version=1)
    card = rpc.calibrators.get_calibrator(one).card
    assert list(card["labels"]) == ["a", "b", "c", "d"]
    assert card["data"]["digest"] == dataset.digest

    parameters = b"".join(c.data for c in rpc.calibrators.get_calibrator_parameters(one))
    (tmp_path / "one.calib").write_bytes(parameters)
    np.testing.assert_array_equal(
        Calibrator.load(tmp_path / "one.calib").parameters["temperature"],
        local.parameters["temperature"],
    )
    graph = b"".join(chunk.data for chunk in rpc.calibrators.get_calibrator_onnx(one))
    session = onnxruntime.InferenceSession(graph)
    (by_graph,) = session.run(None, {"logits": logits[:5].astype(np.float32)})
    np.testing.assert_allclose(by_graph, array(answer), atol=1e-6)


@pytest.mark.parametrize("raw", [True, False])
def test_answers_are_in_the_form_of_the_question(ready: Service, rpc: Rpc, data, raw: bool) -> None:
    logits = data[0][:7].astype(np.float32)
    answer = rpc.calibration.calibrate(question(logits, matrix=matrix(logits, raw)))
    assert bool(answer.probabilities.raw) is raw
    by_rest = ready.calibrate(logits).json()["probabilities"]
    np.testing.assert_allclose(array(answer), by_rest, rtol=1e-6)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_raw_of_any_number_type(ready: Service, rpc: Rpc, datatype: str) -> None:
    logits = np.array([[1, -2, 3, 0], [0, 0, 5, 1]], np.float32)
    raw = {
        "FP16": logits.astype("<f2").tobytes(),
        "BF16": (logits.view("<u4") >> 16).astype("<u2").tobytes(),
        "FP32": logits.astype("<f4").tobytes(),
        "FP64": logits.astype("<f8").tobytes(),
    }[datatype]
    given = pb.Matrix(rows=2, classes=4, raw=raw, datatype=f"DATATYPE_{datatype}")
    answer = rpc.calibration.calibrate(question(logits, matrix=given))
    expected = ready.calibrate(logits).json()["probabilities"]
    np.testing.assert_allclose(array(answer), expected, rtol=1e-5)


@pytest.mark.parametrize("raw", [True, False])
def test_null_masks_a_class(ready: Service, rpc: Rpc, raw: bool) -> None:
    """As −inf, which floats have."""
    given = matrix([[1.0, -np.inf, 2.0, -np.inf]], raw)
    row = array(rpc.calibration.calibrate(question([[0]], matrix=given)))[0]
    assert row[1] == row[3] == 0
    assert row.sum() == pytest.approx(1)


def test_probabilities_where_the_request_says_so(ready: Service, rpc: Rpc, data) -> None:
    logits = data[0][:5]
    p = scipy.special.softmax(logits, axis=1)
    answer = rpc.calibration.calibrate(question(p, input=pb.INPUT_PROBABILITIES))
    np.testing.assert_allclose(
        array(answer), ready.calibrate(logits).json()["probabilities"], atol=1e-5
    )


def test_promotion_and_rollback(ready: Service, rpc: Rpc, data) -> None:
    """Every request after the answer sees the new version; the trail says who, when and why."""
    job = fitted(rpc, ready, map="class_temperature", promote=pb.PROMOTE_NEVER)
    assert job.result["promoted"] is False

    def serving() -> int:
        return int(rpc.calibration.calibrate(question(data[0][:1])).calibrator.version)

    def move(version: int, reason: str) -> pb.Alias:
        change = {"model": "digits", "alias": "champion", "version": version, "reason": reason}
        found: pb.Alias = rpc.calibrators.set_alias(pb.SetAliasRequest(**change))
        return found

    assert serving() == 1
    assert move(2, "by hand").version == 2
    assert serving() == 2
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["version"] == 2
    assert move(1, "back").version == 1
    assert serving() == 1
    asked = pb.GetAliasHistoryRequest(model="digits", alias="champion")
    history = rpc.calibrators.get_alias_history(asked).items
    steps = [(one.from_version or None, one.to_version) for one in history]
    assert steps == [(2, 1), (1, 2), (None, 1)]
    assert not history[2].HasField("from_version")
    assert history[0].reason == "back"
    assert "beats identity" in history[2].reason


def test_versions_and_aliases_by_query(ready: Service, rpc: Rpc, data) -> None:
    fitted(rpc, ready, map="identity", promote=pb.PROMOTE_NEVER)
    rpc.calibrators.set_alias(pb.SetAliasRequest(model="digits", alias="shadow", version=2))
    for selector, version in (("1", 1), ("2", 2), ("shadow", 2), ("champion", 1), ("", 1)):
        answer = rpc.calibration.calibrate(question(data[0][:1], calibrator=selector))
        assert answer.calibrator.version == version


def test_promote_true_promotes_whatever(ready: Service, rpc: Rpc, data) -> None:
    job = fitted(rpc, ready, map="identity", promote=pb.PROMOTE_ALWAYS)
    assert job.result["promoted"] is True
    assert rpc.calibration.calibrate(question(data[0][:1])).calibrator.map == "identity"


def test_if_better_keeps_the_champion_against_its_equal(ready: Service, rpc: Rpc) -> None:
    """What is not said is as in REST: temperature by nll, promoted if it is better."""
    job = fitted(rpc, ready)
    assert job.result["promoted"] is False
    assert "does not beat temperature" in job.result["reason"]


def test_options_reach_the_fit(ready: Service, rpc: Rpc) -> None:
    """A Struct's numbers are all doubles; 5.0 is the whole number 5, as in JSON."""
    wanted = pb.CreateCalibratorRequest(map="histogram_binning", promote=pb.PROMOTE_NEVER)
    wanted.options.update({"bins": 5})
    job = fitted(rpc, ready, map=wanted.map, options=wanted.options, promote=wanted.promote)
    by_rest = ready.client.get(f"/v1/models/digits/calibrators/{job.result['version']:.0f}").json()
    assert by_rest["card"]["options"]["bins"] == 5


def test_a_dataset_of_probabilities(service: Service, rpc: Rpc, data) -> None:
    logits, labels = data
    service.model()
    file = _npz_of(probabilities=scipy.special.softmax(logits, axis=1), labels=labels)
    answer = rpc.datasets.upload_dataset(pieces(file, input=pb.INPUT_PROBABILITIES))
    assert answer.dataset.input == pb.INPUT_PROBABILITIES


def _npz_of(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_lists_come_in_pages(service: Service, rpc: Rpc) -> None:
    names = [f"m{i:02}" for i in range(7)]
    for name in names:
        service.model(name)
    seen, cursor = [], ""
    while True:
        page = rpc.models.list_models(pb.ListModelsRequest(limit=3, cursor=cursor))
        seen += [one.name for one in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert seen == names


def test_lists_of_calibrators_jobs_datasets_and_aliases(ready: Service, rpc: Rpc) -> None:
    ready.fitted(map="identity")
    listed = rpc.calibrators.list_calibrators
    versions = listed(pb.ListCalibratorsRequest(model="digits", limit=1))
    assert [one.version for one in versions.items] == [1]
    rest = listed(pb.ListCalibratorsRequest(model="digits", cursor=versions.next_cursor))
    assert [one.version for one in rest.items] == [2]
    succeeded = pb.ListJobsRequest(model="digits", state=pb.JOB_STATE_SUCCEEDED)
    assert [one.result["version"] for one in rpc.jobs.list_jobs(succeeded).items] == [2, 1]
    failed = pb.ListJobsRequest(state=pb.JOB_STATE_FAILED)
    assert len(rpc.jobs.list_jobs(failed).items) == 0
    datasets = rpc.datasets.list_datasets(pb.ListDatasetsRequest(model="digits")).items
    assert [one.name for one in datasets] == ["validation"]
    one = rpc.datasets.get_dataset(pb.GetDatasetRequest(model="digits", name="validation"))
    assert one == datasets[0]
    aliases = rpc.calibrators.list_aliases(pb.ListAliasesRequest(model="digits")).items
    assert [(one.alias, one.version) for one in aliases] == [("champion", 1)]


def test_the_same_upload_again_is_a_success_without_effect(
    service: Service, rpc: Rpc, data
) -> None:
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


def test_idempotency_keys(service: Service, rpc: Rpc, data) -> None:
    """The same request under the same key does nothing more, whichever way it comes."""
    key = (("idempotency-key", "k1"),)
    wanted = pb.CreateModelRequest(name="digits", classes=4)
    first = rpc.models.create_model(wanted, metadata=key)
    assert rpc.models.create_model(wanted, metadata=key) == first
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


def test_cancel_a_queued_job(service: Service, rpc: Rpc, data) -> None:
    service.model()
    service.upload(npz(*data))
    job = service.ask_fit().json()
    cancelled = rpc.jobs.cancel_job(pb.CancelJobRequest(id=job["id"]))
    assert cancelled.state == pb.JOB_STATE_CANCELLED
    service.work()
    empty = rpc.calibrators.list_calibrators(pb.ListCalibratorsRequest(model="digits"))
    assert len(empty.items) == 0


def test_a_stream_of_pieces(ready: Service, rpc: Rpc, data) -> None:
    """One answer a piece, in order, each as large as one request may be."""
    logits = data[0][:500].astype(np.float32)
    parts = np.split(logits, 10)
    first = question(parts[0])
    rest = [pb.CalibrateRequest(matrix=matrix(part)) for part in parts[1:]]
    answers = list(rpc.calibration.calibrate_stream(iter([first, *rest])))
    assert len(answers) == 10
    whole = np.concatenate([array(one) for one in answers])
    expected = np.concatenate([ready.calibrate(part).json()["probabilities"] for part in parts])
    np.testing.assert_allclose(whole, expected, rtol=1e-6)


def test_one_version_answers_a_whole_stream(ready: Service, rpc: Rpc, data) -> None:
    """A promotion in the middle is seen by the next stream."""
    fitted(rpc, ready, map="identity", promote=pb.PROMOTE_NEVER)

    def asking() -> Iterator[pb.CalibrateRequest]:
        yield question(data[0][:2])
        change = pb.SetAliasRequest(model="digits", alias="champion", version=2)
        rpc.calibrators.set_alias(change)
        yield question(data[0][2:4])

    versions = [one.calibrator.version for one in rpc.calibration.calibrate_stream(asking())]
    assert versions == [1, 1]
    assert rpc.calibration.calibrate(question(data[0][:1])).calibrator.version == 2


def test_a_stream_stays_with_one_calibrator(ready: Service, rpc: Rpc, data) -> None:
    both = [question(data[0][:2]), question(data[0][:2], calibrator="1")]
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate_stream, iter(both))
    assert error.details().startswith("calibrator: found '1'")


def test_late_labels(ready: Service, rpc: Rpc, data) -> None:
    """An id of each prediction, by which its true class is told later; each has an outcome."""
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
    told = rpc.labels.add_labels(pb.AddLabelsRequest(model="digits", labels=labels))
    statuses = [pb.LabelStatus.Name(one.status) for one in told.items]
    assert [one.removeprefix("LABEL_STATUS_") for one in statuses] == [
        "ACCEPTED", "ACCEPTED", "DUPLICATE", "CONFLICT", "INVALID", "INVALID",
    ]  # fmt: skip
    counts = told.counts
    assert (counts.accepted, counts.duplicate, counts.conflict, counts.invalid) == (2, 1, 1, 2)
    assert "labelled 1 before" in told.items[3].reason
    bad = grpc.StatusCode.INVALID_ARGUMENT
    unsaid = pb.AddLabelsRequest(model="digits", labels=[pb.LateLabel(prediction_id=first)])
    assert "labels[0].label" in violations(refused(bad, rpc.labels.add_labels, unsaid))
    for share in (-0.1, 1.1, np.nan):
        error = refused(bad, rpc.calibration.calibrate, question(data[0][:3], ids=share))
        assert "ids" in violations(error)


def test_every_operation_of_rest_is_an_rpc(service: Service) -> None:
    """And only the stream is one more."""
    rpcs = {method_name(method.name) for one in OWN.values() for method in one.methods}
    rest = {
        one["operationId"]
        for path, verbs in service.client.app.openapi()["paths"].items()
        for one in verbs.values()
        if path.startswith("/v1/")
    }
    assert rpcs == rest | {"calibrate_stream"}
    assert rest <= set(operations(service.client.app.openapi()))
