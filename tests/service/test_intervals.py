"""Venn-Abers intervals over REST and gRPC."""

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
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from service.grpc.matrices import array_of
from tests.service.conftest import NPY, Service, npy
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_formats import ARROW, URL
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_workflow import question
from tests.service.test_inference import tensor
from tests.service.test_sets import LOGITS

pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def expected(ready: Service) -> NDArray[np.float64]:
    """The intervals of a served version, by the library."""
    job = ready.fitted(map="venn_abers", promote=True)
    assert job["state"] == "succeeded", job
    content = ready.client.get("/v1/models/digits/calibrators/2/parameters").content
    return recalib.Calibrator.from_bytes(content).predict_interval(LOGITS)


def test_rest_and_rpc_have_the_intervals_of_the_library(
    ready: Service, rpc: Rpc, expected: NDArray[np.float64]
) -> None:
    answer = ready.calibrate(LOGITS, intervals="true").json()
    np.testing.assert_allclose(answer["intervals"], expected, atol=1e-7)
    p, (low, high) = np.array(answer["probabilities"]), np.moveaxis(expected, 2, 0)
    merged = high / (1 - low + high)
    np.testing.assert_allclose(p, merged / merged.sum(axis=1, keepdims=True), atol=1e-6)
    assert "intervals" not in ready.calibrate(LOGITS).json()
    assert ready.calibrate(LOGITS, intervals="true", top_k=1).json()["intervals"]

    def ask(accept: str) -> Any:
        headers = {"Content-Type": NPY["Content-Type"], "Accept": accept}
        return ready.client.post(f"{URL}?intervals=true", content=npy(LOGITS), headers=headers)

    table = pa.ipc.open_stream(ask(ARROW).content).read_all()
    np.testing.assert_allclose(table["intervals"].to_pylist(), expected, atol=1e-7)
    arrays = np.load(io.BytesIO(ask("application/x-npz").content))
    np.testing.assert_allclose(arrays["intervals"], expected, atol=1e-7)
    assert ask("application/x-npy").status_code == 406

    matrix = rpc.calibration.calibrate(question(LOGITS, intervals=True)).intervals
    np.testing.assert_allclose(array_of(matrix).reshape(expected.shape), expected, atol=1e-7)
    assert not rpc.calibration.calibrate(question(LOGITS)).HasField("intervals")


@pytest.mark.parametrize("binary", [False, True])
def test_v2_has_an_output_of_both_ends(
    ready: Service, rpc: Rpc, expected: NDArray[np.float64], binary: bool
) -> None:
    body = {
        "inputs": [tensor(LOGITS.tolist(), shape=[3, 4])],
        "outputs": [{"name": "intervals", "parameters": {"binary_data": binary}}],
    }
    answer = ready.client.post("/v2/models/digits/infer", json=body)
    size = int(answer.headers.get("inference-header-content-length", len(answer.content)))
    (output,) = json.loads(answer.content[:size])["outputs"]
    assert (output["datatype"], output["shape"]) == ("FP32", [3, 4, 2])
    values = np.frombuffer(answer.content[size:], "<f4") if binary else output["data"]
    np.testing.assert_allclose(np.reshape(values, (3, 4, 2)), expected, atol=1e-7)

    raw = [LOGITS.tobytes()] if binary else []
    rows = v2_tensor(None if binary else LOGITS, shape=[3, 4])
    outputs = [v2.ModelInferRequest.InferRequestedOutputTensor(name="intervals")]
    reply = rpc.v2.model_infer(v2_question(rows, outputs=outputs, raw_input_contents=raw))
    flat: Any = reply.outputs[0].contents.fp32_contents
    if binary:
        flat = np.frombuffer(reply.raw_output_contents[0], "<f4")
    np.testing.assert_allclose(np.reshape(flat, (3, 4, 2)), expected, atol=1e-7)
    outputs = ready.client.get("/v2/models/digits").json()["outputs"]
    assert {"name": "intervals", "datatype": "FP32", "shape": [-1, 4, 2]} in outputs


def test_another_map_has_no_intervals(ready: Service, rpc: Rpc) -> None:
    found = "version 1 of model 'digits', of the map temperature"
    check(ready.calibrate(LOGITS, intervals="true"), 422, "intervals", found)
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.calibration.calibrate,
        question(LOGITS, intervals=True),
    )
    assert found in violations(error)["intervals"]
    check(ready.calibrate(LOGITS, intervals="1"), 422, "intervals", "'1'")
    body = {"inputs": [tensor(LOGITS.tolist(), shape=[3, 4])], "outputs": [{"name": "intervals"}]}
    assert found in ready.client.post("/v2/models/digits/infer", json=body).json()["error"]
    names = [each["name"] for each in ready.client.get("/v2/models/digits").json()["outputs"]]
    assert "intervals" not in names
