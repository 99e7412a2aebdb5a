"""Which rows are accepted, over REST, gRPC and V2; fits and refusals."""

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
from tests.service.conftest import NPY, NPZ, Service, npy
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_batches import parts
from tests.service.test_formats import ARROW, URL
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_workflow import fitted as fitted_by_rpc
from tests.service.test_grpc_workflow import question
from tests.service.test_inference import tensor
from tests.service.test_sets import LOGITS

pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def expected(ready: Service) -> NDArray[np.bool_]:
    """The answer of a served version, by the library."""
    job = ready.fitted(max_risk=0.5, sets="lac", promote=True)
    assert job["state"] == "succeeded", job
    content = ready.client.get("/v1/models/digits/calibrators/2/parameters").content
    calibrator = recalib.Calibrator.from_bytes(content)
    rule = calibrator.card.rejection
    assert rule is not None
    assert calibrator.card.sets is not None
    assert (rule.risk, rule.sureness, rule.rows) == (0.5, 0.9, 300)
    accepted = calibrator.is_accepted(LOGITS)
    assert set(accepted.tolist()) == {False, True}
    return accepted


def test_rest_has_truth_values_in_each_format(ready: Service, expected: NDArray[np.bool_]) -> None:
    answer = ready.calibrate(LOGITS, accepted="true").json()
    assert answer["accepted"] == expected.tolist()
    assert "accepted" not in ready.calibrate(LOGITS).json()
    both = ready.calibrate(LOGITS, accepted="true", sets="true", top_k=1).json()
    assert (both["accepted"], len(both["sets"])) == (expected.tolist(), 3)

    def ask(accept: str) -> Any:
        headers = {"Content-Type": NPY["Content-Type"], "Accept": accept}
        return ready.client.post(f"{URL}?accepted=true", content=npy(LOGITS), headers=headers)

    table = pa.ipc.open_stream(ask(ARROW).content).read_all()
    assert table["accepted"].to_pylist() == expected.tolist()
    arrays = np.load(io.BytesIO(ask("application/x-npz").content))
    np.testing.assert_array_equal(arrays["accepted"], expected)
    assert ask("application/x-npy").status_code == 406


def test_rpc_has_truth_values(ready: Service, rpc: Rpc, expected: NDArray[np.bool_]) -> None:
    answer = rpc.calibration.calibrate(question(LOGITS, accepted=True))
    assert list(answer.accepted) == expected.tolist()
    assert not rpc.calibration.calibrate(question(LOGITS)).accepted


@pytest.mark.parametrize("binary", [False, True])
def test_v2_has_an_output_of_truth_values(
    ready: Service, rpc: Rpc, expected: NDArray[np.bool_], binary: bool
) -> None:
    body = {
        "inputs": [tensor(LOGITS.tolist(), shape=[3, 4])],
        "outputs": [{"name": "accepted", "parameters": {"binary_data": binary}}],
    }
    answer = ready.client.post("/v2/models/digits/infer", json=body)
    size = int(answer.headers.get("inference-header-content-length", len(answer.content)))
    (output,) = json.loads(answer.content[:size])["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("accepted", "BOOL", [3])
    values = np.frombuffer(answer.content[size:], np.bool_) if binary else output["data"]
    np.testing.assert_array_equal(values, expected)

    raw = [LOGITS.tobytes()] if binary else []
    rows = v2_tensor(None if binary else LOGITS, shape=[3, 4])
    outputs = [v2.ModelInferRequest.InferRequestedOutputTensor(name="accepted")]
    reply = rpc.v2.model_infer(v2_question(rows, outputs=outputs, raw_input_contents=raw))
    flat: Any = reply.outputs[0].contents.bool_contents
    if binary:
        flat = np.frombuffer(reply.raw_output_contents[0], np.bool_)
    np.testing.assert_array_equal(flat, expected)
    outputs = ready.client.get("/v2/models/digits").json()["outputs"]
    assert {"name": "accepted", "datatype": "BOOL", "shape": [-1]} in outputs


def test_version_without_a_threshold_accepts_nothing(ready: Service, rpc: Rpc) -> None:
    found = "version 1 of model 'digits', without a threshold of rejection"
    check(ready.calibrate(LOGITS, accepted="true"), 422, "accepted", found)
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate, question(LOGITS, accepted=True)
    )
    assert found in violations(error)["accepted"]
    body = {"inputs": [tensor(LOGITS.tolist(), shape=[3, 4])], "outputs": [{"name": "accepted"}]}
    assert found in ready.client.post("/v2/models/digits/infer", json=body).json()["error"]
    names = [each["name"] for each in ready.client.get("/v2/models/digits").json()["outputs"]]
    assert "accepted" not in names
    check(ready.calibrate(LOGITS, accepted="1"), 422, "accepted", "'1'")
    url, content = "/v1/models/digits/batches", write_npz(LOGITS, None)
    for answer in (
        ready.client.post(url, json={"dataset": "validation", "accepted": True}),
        ready.client.post(url, content=content, headers=NPZ, params={"accepted": "true"}),
    ):
        check(answer, 422, "accepted", found)
    create = parts(content, accepted=True)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.batches.create_batch, create)
    assert found in violations(error)["accepted"]


def test_batch_says_which_rows_are_accepted(
    ready: Service, rpc: Rpc, expected: NDArray[np.bool_]
) -> None:
    """Of an upload over REST and gRPC, and of a data set; the batch says that it has them."""
    body, url = write_npz(LOGITS, None), "/v1/models/digits/batches"
    query = {"format": "npz", "accepted": "true"}
    job = ready.client.post(url, content=body, headers=NPZ, params=query).json()
    of_rpc = rpc.batches.create_batch(parts(body, format=pb.BATCH_FORMAT_NPZ, accepted=True))
    both = {"dataset": "validation", "accepted": True, "sets": True}
    of_data = ready.client.post(url, json=both).json()
    for _ in range(3):
        ready.work()
    for id in (job["id"], of_rpc.id):
        content = ready.client.get(f"{url}/{id}/content").content
        np.testing.assert_array_equal(np.load(io.BytesIO(content))["accepted"], expected)
    table = pq.read_table(io.BytesIO(ready.client.get(f"{url}/{of_data['id']}/content").content))
    assert table.column_names == ["probabilities", "sets", "accepted"]
    assert table["accepted"].type == pa.bool_()
    assert rpc.batches.get_batch(pb.GetBatchRequest(model="digits", id=of_rpc.id)).accepted
    assert ready.client.get(f"{url}/{of_data['id']}").json()["accepted"] is True
    plain = ready.client.post(url, json={"dataset": "validation"}).json()
    assert ready.client.get(f"{url}/{plain['id']}").json()["accepted"] is False


def test_rpc_fits_a_threshold(ready: Service, rpc: Rpc) -> None:
    fitted_by_rpc(rpc, ready, max_risk=0.5, promote=pb.PROMOTE_ALWAYS)
    card = ready.client.get("/v1/models/digits/calibrators/2").json()["card"]
    assert (card["rejection"]["risk"], card["rejection"]["rows"]) == (0.5, 300)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"max_risk": 1.0}, "less than 1"),
        ({"max_risk": 0.1, "sets": "lac", "sets_folds": 5}, "only without sets_folds"),
    ],
)
def test_bad_request_of_a_fit_is_refused(
    ready: Service, fields: dict[str, Any], found: str
) -> None:
    answer = ready.ask_fit("digits", **fields)
    check(answer, 422, "max_risk")
    assert found in answer.json()["detail"]


def test_risk_that_no_threshold_keeps_fails_the_job(ready: Service) -> None:
    job = ready.fitted(max_risk=1e-6)
    assert job["state"] == "failed"
    assert "max_risk: found 1e-06 with sureness 0.9 on 300 rows" in json.dumps(job)
