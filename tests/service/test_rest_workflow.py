"""The workflow over REST, on both databases: upload, fit, promote, calibrate."""

from __future__ import annotations

import base64
import hashlib
import io

import numpy as np
import onnxruntime
import pytest
import scipy.special

import recalib
from recalib.calibrator import Calibrator
from recalib.fitting.row_digests import encode_digests, row_digests
from tests.fitting.conftest import draw
from tests.service.conftest import NPY, Service, npy, npz

pytestmark = pytest.mark.sqlite_only


@pytest.mark.both_databases
def test_upload_fit_promote_and_calibrate(service: Service, data, tmp_path) -> None:
    logits, labels = data
    service.model(classes=["a", "b", "c", "d"])

    body = npz(logits, labels)
    dataset = service.upload(body).json()
    assert (dataset["rows"], dataset["classes"]) == (600, 4)
    assert dataset["digest"] == hashlib.sha256(body).hexdigest()
    assert dataset["size_bytes"] == len(body)
    expected = recalib.evaluate(labels, logits=logits)
    evaluation = recalib.StreamingEvaluation(4)
    evaluation.add(labels, logits=logits)
    bounds = evaluation.error_bounds()
    assert dataset["metrics"].keys() == expected.keys()
    for name, estimate in dataset["metrics"].items():
        # Streams approximate metrics that sort rows, see `StreamingEvaluation.error_bounds`.
        exact = pytest.approx(expected[name], rel=1e-9, abs=bounds[name])
        assert estimate["value"] == exact, name

    job = service.fitted(map="temperature", objective="nll")
    assert job["state"] == "succeeded"
    assert job["result"]["version"] == 1
    assert job["result"]["promoted"] is True
    assert "beats identity" in job["result"]["reason"]

    answer = service.calibrate(logits[:5]).json()
    local = recalib.fit(logits, labels)
    np.testing.assert_allclose(answer["probabilities"], local.predict(logits[:5]), atol=1e-6)
    assert answer["calibrator"] == {"version": 1, "map": "temperature"}

    card = service.client.get("/v1/models/digits/calibrators/1").json()["card"]
    assert card["labels"] == ["a", "b", "c", "d"]
    assert card["data"] == {"rows": 600, "digest": dataset["digest"], "name": "validation"}
    assert card["selection"]["better"] is True

    parameters = service.client.get("/v1/models/digits/calibrators/1/parameters").content
    (tmp_path / "one.calib").write_bytes(parameters)
    np.testing.assert_array_equal(
        Calibrator.load(tmp_path / "one.calib").parameters["temperature"],
        local.parameters["temperature"],
    )
    graph = service.client.get("/v1/models/digits/calibrators/1/onnx").content
    session = onnxruntime.InferenceSession(graph)
    (by_graph,) = session.run(None, {"logits": logits[:5].astype(np.float32)})
    np.testing.assert_allclose(by_graph, answer["probabilities"], atol=1e-6)


def test_npy_request_and_answer(ready: Service, data) -> None:
    logits = data[0][:7].astype(np.float32)
    json = ready.calibrate(logits).json()["probabilities"]
    url = "/v1/models/digits/calibrate"
    answer = ready.client.post(
        url, content=npy(logits), headers={**NPY, "Accept": "application/x-npy"}
    )
    assert answer.headers["content-type"] == "application/x-npy"
    probabilities = np.load(io.BytesIO(answer.content))
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, json, rtol=1e-6)
    mixed = ready.client.post(url, content=npy(logits), headers=NPY)
    np.testing.assert_allclose(mixed.json()["probabilities"], json, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", "<i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_accepts_any_number_type(shared: Service, dtype: str, order: str) -> None:
    logits = np.array([[1, -2, 3, 0], [0, 0, 5, 1]], dtype=dtype, order=order)
    answer = shared.client.post("/v1/models/digits/calibrate", content=npy(logits), headers=NPY)
    expected = shared.calibrate(np.asarray(logits, np.float64)).json()["probabilities"]
    np.testing.assert_allclose(answer.json()["probabilities"], expected, rtol=1e-5)


def test_null_masks_a_class(ready: Service) -> None:
    row = ready.calibrate([[1.0, None, 2.0, None]]).json()["probabilities"][0]
    assert row[1] == row[3] == 0
    assert sum(row) == pytest.approx(1)


def test_requests_can_declare_probabilities(ready: Service, data) -> None:
    logits = data[0][:5]
    p = scipy.special.softmax(logits, axis=1)
    answer = ready.client.post(
        "/v1/models/digits/calibrate?input=probabilities", json={"probabilities": p.tolist()}
    )
    np.testing.assert_allclose(
        answer.json()["probabilities"],
        ready.calibrate(logits).json()["probabilities"],
        atol=1e-5,
    )


def test_promotion_and_rollback(ready: Service, data) -> None:
    """Requests after the answer use the new version; the history has actor, time and reason."""
    assert ready.fitted(map="class_temperature", promote=False)["result"]["promoted"] is False
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["version"] == 1
    put = ready.client.put
    url = "/v1/models/digits/aliases/champion"
    assert put(url, json={"version": 2, "reason": "by hand"}).json()["version"] == 2
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["version"] == 2
    assert put(url, json={"version": 1, "reason": "back"}).status_code == 200
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["version"] == 1
    history = ready.client.get(f"{url}/history").json()["items"]
    assert [(entry["from_version"], entry["to_version"]) for entry in history] == [
        (2, 1),
        (1, 2),
        (None, 1),
    ]
    assert history[0]["reason"] == "back"
    assert "beats identity" in history[2]["reason"]


@pytest.mark.both_databases
def test_deleted_things_are_gone_and_free_their_names(ready: Service, data) -> None:
    """What serves, or is in use, is refused; a deletion is repeated with its key only."""
    model, delete = "/v1/models/digits", ready.client.delete
    assert ready.calibrate(data[0][:1]).status_code == 200
    for path in (model, f"{model}/calibrators/1", f"{model}/aliases/champion"):
        refused = delete(path)
        assert (refused.status_code, "champion" in refused.json()["detail"]) == (409, True)
    job = ready.ask_fit().json()["id"]
    refused = delete(f"{model}/datasets/validation")
    assert (refused.status_code, job in refused.json()["detail"]) == (409, True)
    deletion = delete(f"{model}/datasets/validation", params={"force": True}).json()
    assert deletion["deleted_at"] < deletion["erased_after"]
    assert ready.client.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert ready.client.get(f"{model}/datasets").json()["items"] == []
    assert ready.upload(npz(*data)).status_code == 201
    key = {"Idempotency-Key": "once"}
    champion = f"{model}/aliases/champion"
    answers = [delete(champion, params={"force": True}, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert delete(champion, params={"force": True}).status_code == 404
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["uncalibrated"]
    assert ready.calibrate(data[0][:1], calibrator="1").status_code == 200
    assert delete(f"{model}/calibrators/1").status_code == 200
    assert ready.calibrate(data[0][:1], calibrator="1").status_code == 404
    assert delete(model).status_code == 200
    assert ready.calibrate(data[0][:1]).status_code == 404
    for path in (model, f"{model}/datasets/validation"):
        assert delete(path).status_code == 404
    ready.model()
    actions = [entry["action"] for entry in ready.client.get("/v1/audit").json()["items"]]
    deletions = ["model", "calibrator", "alias", "dataset"]
    assert [a for a in actions if "delete" in a] == [f"delete_{kind}" for kind in deletions]


def test_models_are_described_found_and_renamed(ready: Service, data) -> None:
    """The new name serves at once, and the old one is unknown."""
    model, client = "/v1/models/digits", ready.client
    change = {"description": "of the shop", "tags": ["vision"]}
    change["retention"] = {"dataset_seconds": 3600.0}
    answer = client.patch(model, json=change).json()
    assert (answer["description"], answer["tags"]) == ("of the shop", ["vision"])
    assert answer["retention"] == {
        "dataset_seconds": 3600.0, "version_seconds": None, "label_seconds": None,
    }  # fmt: skip
    for path in ("datasets/validation", "calibrators/1"):
        answer = client.patch(f"{model}/{path}", json={"tags": ["may"]}).json()
        assert answer == client.get(f"{model}/{path}").json()
        assert (answer["description"], answer["tags"]) == ("", ["may"])
    ready.model("letters")
    for query, expected in (
        ({"name": "DIG"}, ["digits"]),
        ({"tag": "vision", "model_state": "unverified"}, ["digits"]),
        ({"model_state": "stale"}, []),
    ):
        items = client.get("/v1/models", params=query).json()["items"]
        assert [item["name"] for item in items] == expected
    assert ready.calibrate(data[0][:1]).status_code == 200
    assert client.patch(model, json={"name": "numbers"}).status_code == 409
    client.delete(f"{model}/aliases/champion", params={"force": True})
    assert client.patch(model, json={"name": "letters"}).status_code == 409
    assert client.patch(model, json={"name": "numbers"}).json()["name"] == "numbers"
    assert ready.calibrate(data[0][:1], calibrator="1").status_code == 404
    assert ready.calibrate(data[0][:1], model="numbers", calibrator="1").status_code == 200


def test_local_fit_becomes_a_version(ready: Service) -> None:
    """Compared with the champion on rows that no calibrator was fitted on."""
    logits, labels = draw(900, 4, 2.0, seed=9)
    local = recalib.fit(logits[:600], labels[:600], "vector")
    ready.upload(npz(logits[600:], labels[600:]), name="later")
    digests = encode_digests(row_digests(logits[:600]))
    body = {name: base64.b64encode(content).decode() for name, content in
            (("parameters", local.to_bytes()), ("row_digests", digests))}  # fmt: skip
    url, body = "/v1/models/digits/calibrators", {**body, "dataset": "later"}
    answer = ready.client.post(url, json=body, headers={"Idempotency-Key": "once"})
    assert answer.status_code == 202, answer.text
    again = ready.client.post(url, json=body, headers={"Idempotency-Key": "once"})
    assert again.json() == answer.json()
    ready.work()
    result = ready.client.get(f"/v1/jobs/{answer.json()['id']}").json()["result"]
    assert (result["version"], result["comparison"]["rows"]) == (2, 300)
    calibrated = ready.calibrate(logits[:5], calibrator="2").json()["probabilities"]
    np.testing.assert_allclose(calibrated, local.predict(logits[:5]), atol=1e-6)


def test_calibrator_is_selected_by_version_or_alias(ready: Service, data) -> None:
    ready.fitted(map="identity", promote=False)
    ready.client.put("/v1/models/digits/aliases/shadow", json={"version": 2})
    for selector, version in (("1", 1), ("2", 2), ("shadow", 2), ("champion", 1)):
        answer = ready.calibrate(data[0][:1], calibrator=selector)
        assert answer.json()["calibrator"]["version"] == version


def test_if_better_keeps_an_equal_champion(ready: Service) -> None:
    """The same map on the same rows cannot beat itself: the champion is refitted in each fold."""
    job = ready.fitted(map="temperature")
    assert job["result"]["promoted"] is False
    assert "does not beat temperature" in job["result"]["reason"]


def test_promote_always_promotes_any_result(ready: Service, data) -> None:
    assert ready.fitted(map="identity", promote=True)["result"]["promoted"] is True
    ready.client.put("/v1/models/digits/aliases/champion", json={"version": 2})
    assert ready.calibrate(data[0][:1]).json()["calibrator"]["map"] == "identity"


def test_datasets_can_hold_probabilities(service: Service, data) -> None:
    logits, labels = data
    service.model()
    file = io.BytesIO()
    np.savez(file, probabilities=scipy.special.softmax(logits, axis=1), labels=labels)
    answer = service.upload(file.getvalue(), params={"input": "probabilities"})
    assert answer.json()["input"] == "probabilities"
    service.fitted()
    card = service.client.get("/v1/models/digits/calibrators/1").json()["card"]
    assert card["input"] == "probabilities"


def test_dataset_content_is_the_uploaded_file(service: Service, data) -> None:
    service.model()
    body = npz(*data)
    service.upload(body)
    url = "/v1/models/digits/datasets/validation"
    answer = service.client.get(f"{url}/content")
    assert answer.content == body
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["content-type"] == "application/x-npz"
    assert answer.headers["content-disposition"] == 'attachment; filename="validation.npz"'
    assert service.client.get(url).json()["media_type"] == "application/x-npz"
    text = b'{"logits": [[0, 1, 2, 3]], "labels": [3]}'
    json = {"Content-Type": "application/json; charset=utf-8"}
    service.client.put("/v1/models/digits/datasets/row", content=text, headers=json)
    answer = service.client.get("/v1/models/digits/datasets/row/content")
    assert (answer.content, answer.headers["content-type"]) == (text, "application/json")
    missing = service.client.get("/v1/models/digits/datasets/later/content")
    assert missing.status_code == 404
    assert "dataset 'later' does not exist" in missing.json()["detail"]


def test_lists_have_pages(service: Service) -> None:
    names = [f"m{i:02}" for i in range(7)]
    for name in names:
        service.model(name)
    listed, cursor = [], None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = service.client.get("/v1/models", params=query).json()
        listed += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert listed == names


def test_calibrators_jobs_datasets_and_aliases_are_listed(ready: Service) -> None:
    ready.fitted(map="identity")
    get = ready.client.get
    versions = get("/v1/models/digits/calibrators", params={"limit": 1}).json()
    assert [item["version"] for item in versions["items"]] == [1]
    rest = get("/v1/models/digits/calibrators", params={"cursor": versions["next_cursor"]}).json()
    assert [item["version"] for item in rest["items"]] == [2]
    jobs = get("/v1/jobs", params={"model": "digits", "job_state": "succeeded"}).json()
    assert [item["result"]["version"] for item in jobs["items"]] == [2, 1]
    assert [d["name"] for d in get("/v1/models/digits/datasets").json()["items"]] == ["validation"]
    assert get("/v1/models/digits/datasets/validation").json()["rows"] == 600
    assert [a["alias"] for a in get("/v1/models/digits/aliases").json()["items"]] == ["champion"]


@pytest.mark.slow
def test_repeated_upload_succeeds_without_effect(service: Service, data) -> None:
    service.model()
    body = npz(*data)
    assert service.upload(body).status_code == 201
    again = service.upload(body)
    assert again.status_code == 200
    other = service.upload(npz(data[0] + 1, data[1]))
    assert other.status_code == 409
    assert "exists with other data" in other.json()["detail"]


@pytest.mark.both_databases
def test_idempotency_key_makes_a_request_happen_once(service: Service, data) -> None:
    """A repeated request with the same key has no effect; a different one is rejected."""
    key = {"Idempotency-Key": "k1"}
    body = {"name": "digits", "classes": 4}
    first = service.client.post("/v1/models", json=body, headers=key)
    again = service.client.post("/v1/models", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    other = service.client.post("/v1/models", json={**body, "classes": 5}, headers=key)
    assert other.status_code == 409
    service.upload(npz(*data))
    jobs = {
        service.client.post(
            "/v1/models/digits/calibrators", json={"dataset": "validation"}, headers=key
        ).json()["id"]
        for _ in range(3)
    }
    assert len(jobs) == 1
    assert len(service.client.get("/v1/jobs").json()["items"]) == 1


def test_queued_jobs_can_be_cancelled(service: Service, data) -> None:
    service.model()
    service.upload(npz(*data))
    job = service.ask_fit().json()
    cancelled = service.client.delete(f"/v1/jobs/{job['id']}").json()
    assert cancelled["state"] == "cancelled"
    service.work()
    assert service.client.get("/v1/models/digits/calibrators").json()["items"] == []


def test_impossible_fit_fails_with_a_reason(service: Service, data, registry) -> None:
    """The blob is missing: the job reports it and is not retried for ever."""
    service.model()
    digest = service.upload(npz(*data)).json()["digest"]
    job = service.ask_fit().json()
    filesystem, path = registry.blobs.filesystem, registry.blobs.path(digest)
    filesystem.rm(path)
    service.work()
    failed = service.client.get(f"/v1/jobs/{job['id']}").json()
    assert failed["state"] == "failed"
    assert digest[:8] in failed["error"]
