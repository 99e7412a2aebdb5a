"""Which rows are accepted, over REST, gRPC and V2; fits and refusals."""

from __future__ import annotations

import io
import json
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import recalib
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from tests.service.conftest import NPY, Service, npy
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
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
