"""The Open Inference Protocol V2 over gRPC; the tests have the names of the REST tests."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.errors import UnavailableError
from recalib.registry import Registry
from service.grpc.generated.recalib.v2wire import inference_pb2 as pb
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_inference import ROWS, bytes_of, expected
from tests.service.test_labels import outcomes
from tests.service.test_loaded_calibrators import hanging

pytestmark = pytest.mark.sqlite_only

TYPED = {"FP32": "fp32_contents", "FP64": "fp64_contents"}


def tensor(values: Any = None, datatype: str = "FP32", **more: Any) -> Any:
    """Return an input tensor, with typed contents if there are values."""
    plain = {"name": "logits", "shape": [2, 4], "datatype": datatype}
    result = pb.ModelInferRequest.InferInputTensor(**{**plain, **more})
    if values is not None:
        flat = np.asarray(values, np.float64).reshape(-1).tolist()
        getattr(result.contents, TYPED[datatype]).extend(flat)
    return result


def question(*inputs: Any, **more: Any) -> pb.ModelInferRequest:
    return pb.ModelInferRequest(**{"model_name": "digits", "inputs": inputs, **more})


def text_parameters(**parameters: str) -> dict[str, pb.InferParameter]:
    return {name: pb.InferParameter(string_param=text) for name, text in parameters.items()}


def values(answer: pb.ModelInferResponse) -> NDArray[np.float64]:
    (output,) = answer.outputs
    assert (output.name, output.datatype) == ("probabilities", "FP32")
    if answer.raw_output_contents:
        assert not output.HasField("contents")
        flat = np.frombuffer(answer.raw_output_contents[0], "<f4")
    else:
        flat = np.array(output.contents.fp32_contents)
    return flat.reshape(output.shape)


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_infer_typed(ready: Service, rpc: Rpc, datatype: str) -> None:
    answer = rpc.v2.model_infer(question(tensor(ROWS, datatype), id="seven"))
    np.testing.assert_allclose(values(answer), expected(ready), rtol=1e-6)
    assert (answer.model_name, answer.model_version, answer.id) == ("digits", "1", "seven")
    assert not answer.raw_output_contents


@pytest.mark.parametrize("name", ["dense_1", "probabilities", ""])
def test_infer_accepts_a_tensor_of_any_name(ready: Service, rpc: Rpc, name: str) -> None:
    answer = rpc.v2.model_infer(question(tensor(ROWS, name=name)))
    np.testing.assert_allclose(values(answer), expected(ready), rtol=1e-6)


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_infer_binary(ready: Service, rpc: Rpc, datatype: str) -> None:
    """Bytes in, bytes out; all these logits are exact in every datatype."""
    raw = bytes_of(ROWS, datatype)
    answer = rpc.v2.model_infer(question(tensor(datatype=datatype), raw_input_contents=[raw]))
    assert len(answer.raw_output_contents) == 1
    np.testing.assert_allclose(values(answer), expected(ready), rtol=1e-6)


def test_empty_contents_with_raw_bytes_are_accepted(ready: Service, rpc: Rpc) -> None:
    """MLServer's client sends them."""
    request_input = tensor()
    request_input.contents.SetInParent()
    answer = rpc.v2.model_infer(
        question(request_input, raw_input_contents=[bytes_of(ROWS, "FP32")])
    )
    np.testing.assert_allclose(values(answer), expected(ready), rtol=1e-6)


def test_masked_classes_have_probability_zero(ready: Service, rpc: Rpc) -> None:
    """−inf, typed and in bytes, gives a probability of exactly 0."""
    masked = ROWS.copy()
    masked[0, 1] = -np.inf
    probabilities = values(rpc.v2.model_infer(question(tensor(masked))))
    assert probabilities[0, 1] == 0
    raw = question(tensor(), raw_input_contents=[bytes_of(masked, "FP32")])
    np.testing.assert_array_equal(probabilities, values(rpc.v2.model_infer(raw)))


def test_probabilities_are_accepted_as_input(ready: Service, rpc: Rpc) -> None:
    """A parameter declares them; they are not guessed."""
    p = np.exp(ROWS) / np.exp(ROWS).sum(axis=1, keepdims=True)
    declared = text_parameters(input="probabilities")
    probabilities = values(rpc.v2.model_infer(question(tensor(p, "FP64"), parameters=declared)))
    np.testing.assert_allclose(probabilities, expected(ready), rtol=1e-4)
    wrong = question(tensor(ROWS), parameters=declared)
    refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.v2.model_infer, wrong)


def test_answers_can_be_compressed(ready: Service, rpc: Rpc) -> None:
    answer = rpc.v2.model_infer(question(tensor(ROWS)), compression=grpc.Compression.Gzip)
    np.testing.assert_allclose(values(answer), expected(ready), rtol=1e-6)


def test_version_or_champion_is_selected(ready: Service, rpc: Rpc) -> None:
    """The request names the version; without one, the champion is used."""
    assert ready.fitted(map="vector", promote=False)["result"]["version"] == 2
    first, second = (
        rpc.v2.model_infer(question(tensor(ROWS), model_version=version)) for version in "12"
    )
    assert [answer.model_version for answer in (first, second)] == ["1", "2"]
    assert rpc.v2.model_infer(question(tensor(ROWS))).model_version == "1"
    assert (values(first) != values(second)).any()
    version_two = rpc.v2.model_metadata(pb.ModelMetadataRequest(name="digits", version="2"))
    assert list(version_two.versions) == ["2"]
    all_versions = rpc.v2.model_metadata(pb.ModelMetadataRequest(name="digits"))
    assert (list(all_versions.versions), all_versions.platform) == (["1", "2"], "recalib")
    inputs, outputs = (
        [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in tensors]
        for tensors in (all_versions.inputs, all_versions.outputs)
    )
    assert inputs == [("logits", "FP32", [-1, 4])]
    assert outputs == [("probabilities", "FP32", [-1, 4]), ("prediction_ids", "BYTES", [-1])]


def test_health_is_reported(ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.model("new", classes=2, serve_uncalibrated=False)

    def is_ready(name: str, version: str = "") -> bool:
        request = pb.ModelReadyRequest(name=name, version=version)
        ready_now: bool = rpc.v2.model_ready(request).ready
        return ready_now

    metadata = rpc.v2.server_metadata(pb.ServerMetadataRequest())
    assert (metadata.name, bool(metadata.version)) == ("recalib", True)
    assert rpc.v2.server_live(pb.ServerLiveRequest()).live
    assert rpc.v2.server_ready(pb.ServerReadyRequest()).ready
    assert is_ready("digits")
    assert is_ready("digits", "1")
    assert not is_ready("digits", "9")
    assert not is_ready("new")
    assert not is_ready("unknown")

    def gone(self: Registry) -> None:
        raise UnavailableError("the database is gone")

    monkeypatch.setattr(Registry, "reading", gone)
    monkeypatch.setattr(Registry, "check", gone)
    assert rpc.v2.server_ready(pb.ServerReadyRequest()).ready
    assert is_ready("digits")
    assert values(rpc.v2.model_infer(question(tensor(ROWS)))).shape == (2, 4)
    metadata = rpc.v2.model_metadata(pb.ModelMetadataRequest(name="digits"))
    assert list(metadata.versions) == ["1"]


def test_loaded_models_have_metadata_while_the_registry_hangs(
    ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes soon and lists only the loaded version."""
    ready.fitted(map="vector", promote=False)
    expected(ready)
    metadata = pb.ModelMetadataRequest(name="digits")
    with hanging(ready.registry, monkeypatch) as queries:
        assert list(rpc.v2.model_metadata(metadata).versions) == ["1"]
        assert rpc.v2.model_ready(pb.ModelReadyRequest(name="digits")).ready
        assert queries == ["digits"]
    assert list(rpc.v2.model_metadata(metadata).versions) == ["1", "2"]


def test_not_ready_before_a_calibrator_is_loaded(
    service: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Registry) -> None:
        raise UnavailableError("the database is gone")

    monkeypatch.setattr(Registry, "check", gone)
    assert not rpc.v2.server_ready(pb.ServerReadyRequest()).ready
    assert rpc.v2.server_live(pb.ServerLiveRequest()).live


RAW = bytes_of(ROWS, "FP32")
BOTH = tensor(ROWS)
OUTPUT = pb.ModelInferRequest.InferRequestedOutputTensor


def wanting(*names: str, **more: Any) -> pb.ModelInferRequest:
    contents = [] if "raw_input_contents" in more else [ROWS]
    return question(tensor(*contents), outputs=[OUTPUT(name=name) for name in names], **more)


def test_inference_returns_ids_on_request(ready: Service, rpc: Rpc) -> None:
    """They have type BYTES, in the order of the outputs: typed, or length-prefixed."""
    plain = rpc.v2.model_infer(question(tensor(ROWS)))
    assert [output.name for output in plain.outputs] == ["probabilities"]
    ids, probabilities = rpc.v2.model_infer(wanting("prediction_ids", "probabilities")).outputs
    assert probabilities == plain.outputs[0]
    assert (ids.name, ids.datatype, list(ids.shape)) == ("prediction_ids", "BYTES", [2])
    texts = [content.decode() for content in ids.contents.bytes_contents]
    assert outcomes(ready, *((text, 2) for text in texts)) == ["accepted"] * 2

    request = wanting("probabilities", "prediction_ids", raw_input_contents=[RAW])
    answer = rpc.v2.model_infer(request)
    assert [output.name for output in answer.outputs] == ["probabilities", "prediction_ids"]
    assert not any(output.HasField("contents") for output in answer.outputs)
    raw, tail = answer.raw_output_contents
    np.testing.assert_allclose(np.frombuffer(raw, "<f4").reshape(2, 4), expected(ready))
    texts = []
    while tail:
        length = int.from_bytes(tail[:4], "little")
        texts.append(tail[4 : 4 + length].decode())
        tail = tail[4 + length :]
    assert outcomes(ready, *((text, 2) for text in texts)) == ["accepted"] * 2

    ids_only = rpc.v2.model_infer(wanting("prediction_ids", raw_input_contents=[RAW]))
    assert [output.name for output in ids_only.outputs] == ["prediction_ids"]
    assert len(ids_only.raw_output_contents) == 1


@pytest.mark.parametrize("names", [["ids"], ["probabilities", "prediction_ids", "prediction_ids"]])
def test_inference_rejects_unknown_outputs(ready: Service, rpc: Rpc, names: list[str]) -> None:
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.v2.model_infer, wanting(*names))
    assert "prediction_ids" in violations(error)["outputs"]


#: The request, and the field that the error names.
BAD: dict[str, tuple[pb.ModelInferRequest, str]] = {
    "no inputs": (question(), "inputs"),
    "two inputs": (question(tensor(ROWS), tensor(ROWS)), "inputs"),
    "no data": (question(tensor()), "inputs[0].contents.fp32_contents"),
    "too few": (question(tensor([1, 2])), "inputs[0].contents.fp32_contents"),
    "contents of another datatype": (
        question(pb.ModelInferRequest.InferInputTensor(
            name="logits", shape=[1, 1], datatype="FP32", contents={"fp64_contents": [1.0]})),
        "inputs[0].contents.fp32_contents",
    ),
    "NaN": (question(tensor(ROWS * np.nan)), "logits[0][0]"),
    "integers": (question(tensor(datatype="INT32")), "inputs[0].datatype"),
    "FP16 that is typed": (question(tensor(datatype="FP16")), "inputs[0].datatype"),
    "BF16 that is typed": (question(tensor(datatype="BF16")), "inputs[0].datatype"),
    "one axis": (question(tensor(ROWS, shape=[8])), "inputs[0].shape"),
    "no rows": (question(tensor(shape=[0, 4])), "inputs[0].shape"),
    "below zero": (question(tensor(ROWS, shape=[-2, -4])), "inputs[0].shape"),
    "no room for so many": (question(tensor(shape=[2**62, 2**62])), "inputs[0].shape"),
    "fewer than the shape says": (
        question(tensor(ROWS, shape=[2**32, 4])), "inputs[0].contents.fp32_contents"
    ),
    "other K": (question(tensor([[1, 2]], shape=[1, 2])), "logits"),
    "another output": (question(tensor(ROWS), outputs=[OUTPUT(name="y")]), "outputs"),
    "classification": (
        question(tensor(ROWS), outputs=[
            OUTPUT(name="probabilities", parameters=text_parameters(classification="2"))]),
        "outputs[0].parameters.classification",
    ),
    "input unknown": (
        question(tensor(ROWS), parameters=text_parameters(input="odds")),
        "parameters.input",
    ),
    "input of another type": (
        question(tensor(ROWS), parameters={"input": pb.InferParameter(int64_param=1)}),
        "parameters.input",
    ),
    "segment of another type": (
        question(tensor(ROWS), parameters={"segment": pb.InferParameter(bool_param=True)}),
        "parameters.segment",
    ),
    "a version that is none": (question(tensor(ROWS), model_version="x"), "model_version"),
    "a version written otherwise": (
        question(tensor(ROWS), model_version="01"), "model_version",
    ),
    "bytes cut": (question(tensor(), raw_input_contents=[RAW[:-1]]), "raw_input_contents"),
    "bytes left over": (question(tensor(), raw_input_contents=[RAW + b"x"]), "raw_input_contents"),
    "bytes of two": (question(tensor(), raw_input_contents=[RAW, RAW]), "raw_input_contents"),
    "data twice": (question(BOTH, raw_input_contents=[RAW]), "inputs[0].contents"),
}  # fmt: skip


def test_bad_input_is_a_bad_request(ready: Service, rpc: Rpc) -> None:
    """INVALID_ARGUMENT with one sentence; the sentence and the details name the place."""
    for case, (request, place) in BAD.items():
        error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.v2.model_infer, request)
        assert error.details().startswith(f"{place}: found "), case
        assert set(violations(error)) == {place}, case


def test_every_documented_error_occurs(ready: Service, rpc: Rpc) -> None:
    ready.model("new", classes=2, serve_uncalibrated=False)
    infer, metadata = rpc.v2.model_infer, rpc.v2.model_metadata
    unknown, unready = pb.ModelMetadataRequest(name="unknown"), pb.ModelMetadataRequest(name="new")
    refused(grpc.StatusCode.NOT_FOUND, metadata, unknown)
    refused(grpc.StatusCode.NOT_FOUND, infer, question(tensor(ROWS), model_name="unknown"))
    refused(grpc.StatusCode.NOT_FOUND, infer, question(tensor(ROWS), model_version="9"))
    refused(grpc.StatusCode.FAILED_PRECONDITION, metadata, unready)
    error = refused(
        grpc.StatusCode.FAILED_PRECONDITION, infer, question(tensor(ROWS), model_name="new")
    )
    assert "has no champion" in error.details()
    rows = pb.ModelInferRequest.InferInputTensor(name="logits", shape=[51, 4], datatype="FP32")
    many = question(rows, raw_input_contents=[bytes(51 * 16)])
    assert "at most 50" in refused(grpc.StatusCode.RESOURCE_EXHAUSTED, infer, many).details()
    large = question(tensor(), raw_input_contents=[bytes(100_001)])
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, infer, large)


def test_limit_applies_to_decompressed_messages(ready: Service, rpc: Rpc) -> None:
    bomb = question(tensor(), raw_input_contents=[bytes(2_000_000)])
    gzip = grpc.Compression.Gzip
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, rpc.v2.model_infer, bomb, compression=gzip)


def test_internal_errors_have_no_details(
    ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr("service.calibration.check_logits", broken)
    error = refused(grpc.StatusCode.INTERNAL, rpc.v2.model_infer, question(tensor(ROWS)))
    assert error.details() == "An unexpected error; the server's log has it."
    assert "secret" not in str(error.trailing_metadata())
