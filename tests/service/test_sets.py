"""Prediction sets over REST, gRPC and V2; fits, uploads and refusals."""

from __future__ import annotations

import io
import json
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import recalib
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from tests.files.examples import write_npz
from tests.service.conftest import NPY, NPZ, Service, npy, npz
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_batches import parts
from tests.service.test_formats import ARROW, URL
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_workflow import fitted as fitted_by_rpc
from tests.service.test_grpc_workflow import question
from tests.service.test_inference import tensor
from tests.service.test_uploaded_calibrators import upload_json

pytestmark = pytest.mark.sqlite_only

LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0], [0.1, 0.2, 0.0, 0.1]], np.float32)


@pytest.fixture
def expected(ready: Service) -> NDArray[np.bool_]:
    """The sets of a served version, by the library."""
    job = ready.fitted(sets="aps", coverage=0.8, promote=True)
    assert job["state"] == "succeeded", job
    content = ready.client.get("/v1/models/digits/calibrators/2/parameters").content
    calibrator = recalib.Calibrator.from_bytes(content)
    sets = calibrator.card.sets
    assert sets is not None
    assert (sets.method, sets.coverage, sets.by) == ("aps", 0.8, "all")
    members = calibrator.predict_set(LOGITS)
    assert members.sum(axis=1).tolist() != [1, 1, 1]
    return members


def _classes(members: NDArray[np.bool_]) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in members]


def test_json_and_arrow_have_the_classes_and_npz_truth_values(
    ready: Service, expected: NDArray[np.bool_]
) -> None:
    answer = ready.calibrate(LOGITS, sets="true").json()
    assert answer["sets"] == _classes(expected)
    assert "sets" not in ready.calibrate(LOGITS, sets="false").json()
    top = ready.calibrate(LOGITS, sets="true", top_k=1).json()
    assert top["sets"] == _classes(expected)

    def ask(accept: str) -> Any:
        headers = {"Content-Type": NPY["Content-Type"], "Accept": accept}
        return ready.client.post(f"{URL}?sets=true", content=npy(LOGITS), headers=headers)

    table = pa.ipc.open_stream(ask(ARROW).content).read_all()
    assert table["sets"].to_pylist() == _classes(expected)
    arrays = np.load(io.BytesIO(ask("application/x-npz").content))
    np.testing.assert_array_equal(arrays["sets"], expected)
    assert ask("application/x-npy").status_code == 406


def test_rpc_has_the_classes(ready: Service, rpc: Rpc, expected: NDArray[np.bool_]) -> None:
    answer = rpc.calibration.calibrate(question(LOGITS, sets=True))
    assert [list(row.classes) for row in answer.sets] == _classes(expected)
    assert not rpc.calibration.calibrate(question(LOGITS)).sets


@pytest.mark.parametrize("binary", [False, True])
def test_v2_has_an_output_of_truth_values(
    ready: Service, rpc: Rpc, expected: NDArray[np.bool_], binary: bool
) -> None:
    body = {
        "inputs": [tensor(LOGITS.tolist(), shape=[3, 4])],
        "outputs": [{"name": "sets", "parameters": {"binary_data": binary}}],
    }
    answer = ready.client.post("/v2/models/digits/infer", json=body)
    size = int(answer.headers.get("inference-header-content-length", len(answer.content)))
    (output,) = json.loads(answer.content[:size])["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("sets", "BOOL", [3, 4])
    values = np.frombuffer(answer.content[size:], np.bool_) if binary else output["data"]
    np.testing.assert_array_equal(np.reshape(values, (3, 4)), expected)

    raw = [LOGITS.tobytes()] if binary else []
    rows = v2_tensor(None if binary else LOGITS, shape=[3, 4])
    outputs = [v2.ModelInferRequest.InferRequestedOutputTensor(name="sets")]
    reply = rpc.v2.model_infer(v2_question(rows, outputs=outputs, raw_input_contents=raw))
    flat: Any = reply.outputs[0].contents.bool_contents
    if binary:
        flat = np.frombuffer(reply.raw_output_contents[0], np.bool_)
    np.testing.assert_array_equal(np.reshape(flat, (3, 4)), expected)
    outputs = ready.client.get("/v2/models/digits").json()["outputs"]
    assert {"name": "sets", "datatype": "BOOL", "shape": [-1, 4]} in outputs


def test_version_without_thresholds_has_no_sets(ready: Service, rpc: Rpc) -> None:
    found = "version 1 of model 'digits', without thresholds of prediction sets"
    check(ready.calibrate(LOGITS, sets="true"), 422, "sets", found)
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate, question(LOGITS, sets=True)
    )
    assert found in violations(error)["sets"]
    assert "a version that was fitted with sets: none yet" in str(error)
    body = {"inputs": [tensor(LOGITS.tolist(), shape=[3, 4])], "outputs": [{"name": "sets"}]}
    assert found in ready.client.post("/v2/models/digits/infer", json=body).json()["error"]
    names = [each["name"] for each in ready.client.get("/v2/models/digits").json()["outputs"]]
    assert "sets" not in names
    check(ready.calibrate(LOGITS, sets="1"), 422, "sets", "'1'")
    url, body = "/v1/models/digits/batches", write_npz(LOGITS, None)
    answers = [
        ready.client.post(url, json={"dataset": "validation", "sets": True}),
        ready.client.post(url, content=body, headers=NPZ, params={"sets": "true"}),
    ]
    for answer in answers:
        check(answer, 422, "sets", found)
    create = parts(body, sets=True)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.batches.create_batch, create)
    assert found in violations(error)["sets"]


def test_model_without_champion_has_no_sets(service: Service) -> None:
    service.model()
    check(service.calibrate(LOGITS, sets="true"), 422, "sets", "no champion of model 'digits'")
    service.model("raw", 4, serve_uncalibrated=True)
    body, query = write_npz(LOGITS, None), {"sets": "true"}
    answer = service.client.post("/v1/models/raw/batches", content=body, headers=NPZ, params=query)
    check(answer, 422, "sets", "no champion of model 'raw'")


def test_uploaded_thresholds_are_served(ready: Service, data: Any) -> None:
    calibrator = recalib.fit(*data, sets="lac", coverage=0.7)
    body = upload_json(calibrator, promote=True)
    assert ready.client.post("/v1/models/digits/calibrators", json=body).status_code == 202
    ready.work()
    answer = ready.calibrate(LOGITS, sets="true").json()
    assert answer["sets"] == _classes(calibrator.predict_set(LOGITS))


def test_fits_have_all_options_of_sets(ready: Service, rpc: Rpc) -> None:
    """A penalty of 0 and no rank without it are values, not fields that are not set."""
    options = {"sets": "raps", "sets_folds": 3, "sets_penalty": 0.0, "sets_k_reg": 0}
    fitted_by_rpc(rpc, ready, sets_by="class", promote=pb.PROMOTE_ALWAYS, **options)
    assert ready.fitted(sets_by="class", **options)["state"] == "succeeded"
    for version in (2, 3):
        path = f"/v1/models/digits/calibrators/{version}"
        sets = ready.client.get(path).json()["card"]["sets"]
        assert (sets["method"], sets["coverage"], sets["by"]) == ("raps", 0.9, "class")
        assert (sets["penalty"], sets["k_reg"], sets["folds"]) == (0.0, 0, 3)
        assert (sets["finite_sample"], sets["rows"], len(sets["thresholds"])) == (False, 600, 4)


def test_batch_has_the_sets_of_calibrate(
    ready: Service, rpc: Rpc, expected: NDArray[np.bool_]
) -> None:
    """Of an upload over REST and gRPC, and of a data set; the batch says that it has them."""
    body = write_npz(LOGITS, None)
    url = "/v1/models/digits/batches"
    query = {"format": "npz", "sets": "true"}
    job = ready.client.post(url, content=body, headers=NPZ, params=query).json()
    of_rpc = rpc.batches.create_batch(parts(body, format=pb.BATCH_FORMAT_NPZ, sets=True))
    of_data = ready.client.post(url, json={"dataset": "validation", "sets": True}).json()
    for _ in range(3):
        ready.work()
    for id in (job["id"], of_rpc.id):
        content = ready.client.get(f"{url}/{id}/content").content
        np.testing.assert_array_equal(np.load(io.BytesIO(content))["sets"], expected)
    table = pq.read_table(io.BytesIO(ready.client.get(f"{url}/{of_data['id']}/content").content))
    assert table.column_names == ["probabilities", "sets"]
    assert rpc.batches.get_batch(pb.GetBatchRequest(model="digits", id=of_rpc.id)).sets
    assert ready.client.get(f"{url}/{of_data['id']}").json()["sets"] is True


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"coverage": 0.9}, "coverage", "only together with the name of a method"),
        ({"sets": "lac", "coverage": 1.0}, "coverage", "less than 1"),
        ({"sets": "best"}, "sets", "'lac', 'aps' or 'raps'"),
        ({"sets_by": "class"}, "sets_by", "only together with sets"),
        ({"sets_folds": 5}, "sets_folds", "only together with sets"),
        ({"sets": "lac", "sets_folds": 601}, "sets_folds", "2 to 600"),
        ({"sets": "lac", "sets_folds": 1}, "sets_folds", "greater than or equal to 2"),
        ({"sets": "aps", "sets_penalty": 0.1}, "sets_penalty", "only with sets of raps"),
        ({"sets_k_reg": 3}, "sets_k_reg", "only with sets of raps"),
        ({"sets": "raps", "sets_penalty": -0.1}, "sets_penalty", "greater than or equal to 0"),
    ],
)
def test_impossible_fits_are_refused(
    ready: Service, options: dict[str, Any], field: str, message: str
) -> None:
    answer = ready.ask_fit(**options)
    check(answer, 422, field)
    assert message in answer.text


def test_multilabel_model_has_no_sets(service: Service) -> None:
    service.model("tagger", 3, task="multilabel")
    rng = np.random.default_rng(0)
    service.upload(npz(rng.normal(size=(90, 3)), rng.random((90, 3)) < 0.5), model="tagger")
    answer = service.ask_fit("tagger", map="platt", sets="lac")
    check(answer, 422, "task")
    assert "rows are exchangeable, with one label each" in answer.json()["detail"]
