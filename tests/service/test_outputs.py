"""What answers have besides probabilities: sets, intervals and accepted rows, on every transport.

Each is asked of REST in all formats, of gRPC and of V2; sets and accepted rows also of batches.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import recalib
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.generated.recalib.v2wire import inference_pb2 as v2
from service.grpc.matrices import array_of
from tests.files.examples import write_npz
from tests.service.conftest import NPY, NPZ, Service, npy
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_batches import parts
from tests.service.test_formats import ARROW, URL
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_workflow import question
from tests.service.test_inference import tensor

pytestmark = pytest.mark.sqlite_only

LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0], [0.1, 0.2, 0.0, 0.1]], np.float32)
_BATCHES = "/v1/models/digits/batches"
_Array = NDArray[Any]


def members_of(sets: list[list[int]]) -> _Array:
    """Return the truth values of sets that are numbers of classes."""
    members = np.zeros(LOGITS.shape, bool)
    for row, numbers in enumerate(sets):
        members[row, numbers] = True
    return members


class Output(NamedTuple):
    """An output besides the probabilities."""

    #: In the query, in answers and in V2.
    name: str
    #: The fit of a version that has it.
    fit: dict[str, Any]
    #: What the library says.
    of_library: Callable[[recalib.Calibrator], _Array]
    #: The array of what JSON and Arrow have.
    of_list: Callable[[Any], _Array]
    #: That of what gRPC has.
    of_reply: Callable[[pb.CalibrateResponse], _Array]
    datatype: str
    #: What a version lacks that does not have it.
    lacks: str


_OUTPUTS = {
    output.name: output
    for output in (
        Output(
            "sets",
            {"sets": "aps", "coverage": 0.8},
            lambda calibrator: calibrator.predict_set(LOGITS),
            members_of,
            lambda reply: members_of([list(row.classes) for row in reply.sets]),
            "BOOL",
            "without thresholds of prediction sets",
        ),
        Output(
            "intervals",
            {"map": "venn_abers"},
            lambda calibrator: calibrator.predict_interval(LOGITS),
            np.array,
            lambda reply: array_of(reply.intervals).reshape(3, 4, 2),
            "FP32",
            "of the map temperature",
        ),
        Output(
            "accepted",
            {"max_risk": 0.5},
            lambda calibrator: calibrator.is_accepted(LOGITS),
            np.array,
            lambda reply: np.array(reply.accepted),
            "BOOL",
            "without a threshold of rejection",
        ),
    )
}
_each = pytest.mark.parametrize("output", _OUTPUTS.values(), ids=_OUTPUTS)


def _served(ready: Service, **fit: Any) -> recalib.Calibrator:
    job = ready.fitted(**fit, promote=True)
    assert job["state"] == "succeeded", job
    content = ready.client.get("/v1/models/digits/calibrators/2/parameters").content
    return recalib.Calibrator.from_bytes(content)


@_each
def test_every_transport_has_the_output_of_the_library(
    ready: Service, rpc: Rpc, output: Output
) -> None:
    expected = output.of_library(_served(ready, **output.fit))
    assert len(np.unique(expected)) > 1
    for values in (
        *_rest_values(ready, output),
        output.of_reply(rpc.calibration.calibrate(question(LOGITS, **{output.name: True}))),
        *_v2_values(ready, output, [-1, *expected.shape[1:]]),
        *_v2_rpc_values(rpc, output),
    ):
        assert values.size == expected.size
        np.testing.assert_allclose(np.reshape(values, expected.shape), expected, rtol=0, atol=1e-7)
    plain = rpc.calibration.calibrate(question(LOGITS))
    assert output.name not in [field.name for field, _ in plain.ListFields()]


def _rest_values(ready: Service, output: Output) -> list[_Array]:
    """Return the output as JSON, beside the likeliest class, as Arrow and as .npz."""

    def ask(accept: str) -> Any:
        headers = {"Content-Type": NPY["Content-Type"], "Accept": accept}
        return ready.client.post(f"{URL}?{output.name}=true", content=npy(LOGITS), headers=headers)

    assert output.name not in ready.calibrate(LOGITS).json()
    assert output.name not in ready.calibrate(LOGITS, **{output.name: "false"}).json()
    assert ask("application/x-npy").status_code == 406
    answer = ready.calibrate(LOGITS, **{output.name: "true"}).json()
    top = ready.calibrate(LOGITS, **{output.name: "true"}, top_k=1).json()
    table = pa.ipc.open_stream(ask(ARROW).content).read_all()
    arrays = np.load(io.BytesIO(ask("application/x-npz").content))
    lists = (answer[output.name], top[output.name], table[output.name].to_pylist())
    return [*map(output.of_list, lists), arrays[output.name]]


def _v2_values(ready: Service, output: Output, shape: list[int]) -> list[_Array]:
    """Return the output of V2 over REST as JSON and as bytes, which the metadata describe."""
    described = ready.client.get("/v2/models/digits").json()["outputs"]
    assert {"name": output.name, "datatype": output.datatype, "shape": shape} in described
    found = []
    for binary in (False, True):
        answer = _infer(ready, output, parameters={"binary_data": binary})
        size = int(answer.headers.get("inference-header-content-length", len(answer.content)))
        (tensor,) = json.loads(answer.content[:size])["outputs"]
        assert (tensor["name"], tensor["datatype"]) == (output.name, output.datatype)
        assert tensor["shape"] == [3, *shape[1:]]
        content = answer.content[size:]
        found.append(_from_bytes(content, output) if binary else np.array(tensor["data"]))
    return found


def _infer(ready: Service, output: Output, **more: Any) -> Any:
    outputs = [{"name": output.name, **more}]
    body = {"inputs": [tensor(LOGITS.tolist(), shape=[3, 4])], "outputs": outputs}
    return ready.client.post("/v2/models/digits/infer", json=body)


def _from_bytes(content: bytes, output: Output) -> _Array:
    return np.frombuffer(content, np.bool_ if output.datatype == "BOOL" else "<f4")


def _v2_rpc_values(rpc: Rpc, output: Output) -> list[_Array]:
    """Return the output of V2 over gRPC as typed contents and as bytes."""
    outputs = [v2.ModelInferRequest.InferRequestedOutputTensor(name=output.name)]
    typed = rpc.v2.model_infer(v2_question(v2_tensor(LOGITS, shape=[3, 4]), outputs=outputs))
    raw = [LOGITS.tobytes()]
    rows = v2_tensor(None, shape=[3, 4])
    reply = rpc.v2.model_infer(v2_question(rows, outputs=outputs, raw_input_contents=raw))
    contents = getattr(typed.outputs[0].contents, f"{output.datatype.lower()}_contents")
    return [np.array(contents), _from_bytes(reply.raw_output_contents[0], output)]


@_each
def test_a_version_without_the_output_is_refused(ready: Service, rpc: Rpc, output: Output) -> None:
    found = f"version 1 of model 'digits', {output.lacks}"
    check(ready.calibrate(LOGITS, **{output.name: "true"}), 422, output.name, found)
    check(ready.calibrate(LOGITS, **{output.name: "1"}), 422, output.name, "'1'")
    request = question(LOGITS, **{output.name: True})
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate, request)
    assert found in violations(error)[output.name]
    assert found in _infer(ready, output).json()["error"]
    names = [each["name"] for each in ready.client.get("/v2/models/digits").json()["outputs"]]
    assert output.name not in names


@pytest.mark.parametrize("name", ["sets", "accepted"])
def test_a_batch_of_a_version_without_the_output_is_refused(
    ready: Service, rpc: Rpc, name: str
) -> None:
    found, content = _OUTPUTS[name].lacks, write_npz(LOGITS, None)
    for answer in (
        ready.client.post(_BATCHES, json={"dataset": "validation", name: True}),
        ready.client.post(_BATCHES, content=content, headers=NPZ, params={name: "true"}),
    ):
        check(answer, 422, name, found)
    create = parts(content, **{name: True})
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.batches.create_batch, create)
    assert found in violations(error)[name]
    assert ": none yet" in violations(error)[name]


def test_batches_have_the_outputs_of_calibrate(ready: Service, rpc: Rpc) -> None:
    """Of an upload over REST and gRPC, and of a data set; the batch says that it has them."""
    calibrator = _served(ready, sets="lac", max_risk=0.5)
    assert calibrator.card.rejection is not None
    assert calibrator.card.rejection.rows == 300
    body = write_npz(LOGITS, None)
    query = {"format": "npz", "sets": "true", "accepted": "true"}
    job = ready.client.post(_BATCHES, content=body, headers=NPZ, params=query).json()
    header = {"format": pb.BATCH_FORMAT_NPZ, "sets": True, "accepted": True}
    of_rpc = rpc.batches.create_batch(parts(body, **header))
    both = {"dataset": "validation", "accepted": True, "sets": True}
    of_data = ready.client.post(_BATCHES, json=both).json()
    plain = ready.client.post(_BATCHES, json={"dataset": "validation"}).json()
    for _ in range(3):
        ready.work()
    for id in (job["id"], of_rpc.id):
        content = ready.client.get(f"{_BATCHES}/{id}/content").content
        arrays = np.load(io.BytesIO(content))
        np.testing.assert_array_equal(arrays["sets"], calibrator.predict_set(LOGITS))
        np.testing.assert_array_equal(arrays["accepted"], calibrator.is_accepted(LOGITS))
    content = ready.client.get(f"{_BATCHES}/{of_data['id']}/content").content
    table = pq.read_table(io.BytesIO(content))
    assert table.column_names == ["probabilities", "sets", "accepted"]
    assert table["accepted"].type == pa.bool_()
    of_rpc = rpc.batches.get_batch(pb.GetBatchRequest(model="digits", id=of_rpc.id))
    assert (of_rpc.sets, of_rpc.accepted) == (True, True)
    for id, has in ((of_data["id"], True), (plain["id"], False)):
        batch = ready.client.get(f"{_BATCHES}/{id}").json()
        assert (batch["sets"], batch["accepted"]) == (has, has)
