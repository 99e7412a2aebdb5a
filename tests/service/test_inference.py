"""The Open Inference Protocol V2 over REST, byte by byte; another test uses real clients."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.errors import UnavailableError
from recalib.registry import Registry
from service.serving.json_pieces import PIECE_BYTES
from tests.service.conftest import Service
from tests.service.documented import operations
from tests.service.test_loaded_calibrators import hanging

pytestmark = pytest.mark.sqlite_only

MODEL = "/v2/models/digits"
INFER = f"{MODEL}/infer"
LENGTH = "Inference-Header-Content-Length"
ROWS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0]])


def tensor(data: Any = None, **more: Any) -> dict[str, Any]:
    plain = {"name": "logits", "shape": [2, 4], "datatype": "FP32"}
    return {**plain, **({} if data is None else {"data": data}), **more}


def ask(service: Service, *inputs: dict[str, Any], path: str = INFER, **more: Any) -> Any:
    return service.client.post(path, json={"inputs": list(inputs), **more})


def binary(document: dict[str, Any], *tensors: bytes) -> dict[str, Any]:
    """Return a request whose JSON is followed by bytes."""
    text = json.dumps(document).encode()
    return {"content": text + b"".join(tensors), "headers": {LENGTH: str(len(text))}}


def bytes_of(array: NDArray[Any], datatype: str) -> bytes:
    if datatype == "BF16":
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return array.astype({"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}[datatype]).tobytes()


def expected(service: Service, logits: Any = ROWS) -> NDArray[np.float64]:
    answer = service.calibrate(np.asarray(logits))
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["probabilities"])


def values(answer: Any) -> NDArray[np.float64]:
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"]) == ("probabilities", "FP32")
    return np.array(output["data"]).reshape(output["shape"])


@pytest.mark.parametrize("sent", [ROWS.tolist(), ROWS.reshape(-1).tolist()], ids=["rows", "flat"])
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_infer_json(shared: Service, sent: Any, datatype: str) -> None:
    answer = ask(shared, tensor(sent, datatype=datatype), id="seven")
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)
    document = answer.json()
    assert (document["model_name"], document["model_version"]) == ("digits", "1")
    assert document["id"] == "seven"
    assert LENGTH not in answer.headers


@pytest.mark.parametrize("name", ["dense_1", "probabilities", ""])
def test_infer_accepts_a_tensor_of_any_name(shared: Service, name: str) -> None:
    answer = ask(shared, tensor(ROWS.tolist(), name=name))
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)


def _response(*outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a response of another model, as a step of an InferenceGraph receives it."""
    return {"model_name": "classifier", "model_version": "7", "outputs": list(outputs), **more}


def test_infer_accepts_the_response_of_another_model(shared: Service) -> None:
    """An output of any name, or that named `logits`; parameters of the response are not ours."""
    logits = tensor(ROWS.reshape(-1).tolist(), name="dense_1", parameters={"content_type": "np"})
    response = _response(logits, id="seven", parameters={"input": "image", "segment": 3})
    answer = shared.client.post(INFER, json=response)
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)
    assert answer.json()["id"] == "seven"
    label = {"name": "label", "shape": [2], "datatype": "INT64", "data": [3, 0]}
    answer = shared.client.post(INFER, json=_response(label, tensor(ROWS.tolist())))
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)
    sized = tensor(name="dense_1", parameters={"binary_data_size": len(RAW)})
    answer = shared.client.post(INFER, **binary(_response(sized), RAW))
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)


def test_large_response_of_another_model_is_parsed_in_pieces(shared: Service) -> None:
    """50 rows of long numbers exceed what is parsed at once."""
    rows = np.random.default_rng(0).normal(size=(50, 4))
    data = ("[" + ", ".join(f"{x:.400f}" for x in rows.reshape(-1)) + "]").encode()
    head = b'{"model_name": "c", "outputs": [{"name": "y", "shape": [50, 4], "datatype": "FP64", '
    body = head + b'"data": ' + data + b"}]}"
    assert len(body) > PIECE_BYTES
    answer = shared.client.post(INFER, content=body)
    np.testing.assert_allclose(values(answer), expected(shared, rows), rtol=1e-5)


def test_query_says_what_the_values_are(shared: Service) -> None:
    """A step of an InferenceGraph has a URL, and cannot change the response before it."""
    p = np.exp(ROWS) / np.exp(ROWS).sum(axis=1, keepdims=True)
    response = _response(tensor(p.tolist(), name="y"))
    answer = shared.client.post(INFER, json=response, params={"input": "probabilities"})
    np.testing.assert_allclose(values(answer), expected(shared), atol=1e-5)
    answer = shared.client.post(INFER, json=response, params={"input": "odds"})
    assert answer.status_code == 400
    assert "parameters.input" in answer.json()["error"]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_infer_binary(shared: Service, datatype: str) -> None:
    """Bytes in, bytes out; all these logits are exact in every datatype."""
    raw = bytes_of(ROWS, datatype)
    request_input = tensor(datatype=datatype, parameters={"binary_data_size": len(raw)})
    question = {
        "inputs": [request_input],
        "outputs": [{"name": "probabilities", "parameters": {"binary_data": True}}],
    }
    answer = shared.client.post(INFER, **binary(question, raw))
    assert answer.status_code == 200, answer.text
    size = int(answer.headers[LENGTH])
    (output,) = json.loads(answer.content[:size])["outputs"]
    assert output["parameters"] == {"binary_data_size": 32}
    assert "data" not in output
    probabilities = np.frombuffer(answer.content[size:], "<f4").reshape(output["shape"])
    np.testing.assert_allclose(probabilities, expected(shared), rtol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "outputs", "is_binary"),
    [
        ({}, [], False),
        ({"binary_data_output": True}, [], True),
        ({"binary_data_output": True}, [{"name": "probabilities"}], True),
        (
            {"binary_data_output": True},
            [{"name": "probabilities", "parameters": {"binary_data": False}}],
            False,
        ),
        ({}, [{"name": "probabilities", "parameters": {"binary_data": True}}], True),
    ],
)
def test_output_parameters_override_request_parameters(
    shared: Service, parameters: Any, outputs: Any, is_binary: bool
) -> None:
    """The parameter of the output applies first, then that of the request."""
    answer = ask(shared, tensor(ROWS.tolist()), parameters=parameters, outputs=outputs)
    assert answer.status_code == 200, answer.text
    assert (LENGTH in answer.headers) is is_binary


def test_masked_classes_have_probability_zero(ready: Service) -> None:
    """null in JSON and −inf in bytes give a probability of exactly 0."""
    masked = ROWS.copy()
    masked[0, 1] = -np.inf
    data = [[None if np.isinf(z) else z for z in row] for row in masked.tolist()]
    probabilities = values(ask(ready, tensor(data)))
    assert probabilities[0, 1] == 0
    raw = bytes_of(masked, "FP32")
    request_input = tensor(parameters={"binary_data_size": len(raw)})
    again = values(ready.client.post(INFER, **binary({"inputs": [request_input]}, raw)))
    np.testing.assert_array_equal(probabilities, again)


def test_probabilities_are_accepted_as_input(ready: Service) -> None:
    """A parameter declares them; they are not guessed."""
    p = np.exp(ROWS) / np.exp(ROWS).sum(axis=1, keepdims=True)
    probabilities = values(ask(ready, tensor(p.tolist()), parameters={"input": "probabilities"}))
    np.testing.assert_allclose(probabilities, expected(ready), rtol=1e-4)
    refused = ask(ready, tensor(ROWS.tolist()), parameters={"input": "probabilities"})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("encoding", "press"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_answers_can_be_compressed(shared: Service, encoding: str, press: Any) -> None:
    body = json.dumps({"inputs": [tensor(ROWS.tolist())]}).encode()
    headers = {"Content-Encoding": encoding, "Accept-Encoding": encoding}
    answer = shared.client.post(INFER, content=press(body), headers=headers)
    assert answer.headers["Content-Encoding"] == encoding
    np.testing.assert_allclose(values(answer), expected(shared), rtol=1e-6)
    plain = shared.client.post(INFER, content=body, headers={"Accept-Encoding": "gzip, br"})
    assert "Content-Encoding" not in plain.headers


def test_binary_header_has_the_uncompressed_length(ready: Service) -> None:
    raw = bytes_of(ROWS, "FP32")
    request_input = tensor(parameters={"binary_data_size": len(raw)})
    request = binary({"inputs": [request_input], "parameters": {"binary_data_output": True}}, raw)
    request["content"] = gzip.compress(request["content"])
    request["headers"] |= {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    answer = ready.client.post(INFER, **request)
    assert answer.status_code == 200, answer.text
    size = int(answer.headers[LENGTH])
    assert json.loads(answer.content[:size])["outputs"][0]["parameters"]["binary_data_size"] == 32
    assert len(answer.content) == size + 32


def test_version_or_champion_is_selected(ready: Service) -> None:
    """The path names the version; without one, the champion is used."""
    job = ready.fitted(map="vector", promote=False)
    assert job["result"]["version"] == 2
    first, second = (
        ask(ready, tensor(ROWS.tolist()), path=f"{MODEL}/versions/{v}/infer") for v in (1, 2)
    )
    assert [item.json()["model_version"] for item in (first, second)] == ["1", "2"]
    assert ask(ready, tensor(ROWS.tolist())).json()["model_version"] == "1"
    assert (values(first) != values(second)).any()
    assert ready.client.get(f"{MODEL}/versions/2").json()["versions"] == ["2"]
    assert ready.client.get(MODEL).json() == {
        "name": "digits",
        "versions": ["1", "2"],
        "platform": "recalib",
        "inputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "prediction_ids", "datatype": "BYTES", "shape": [-1]},
        ],
    }


def test_health_is_reported(ready: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.model("new", classes=2, serve_uncalibrated=False)
    get = ready.client.get
    assert get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert get("/v2/health/live").json() == {"live": True, "ready": True}
    assert get("/v2/health/ready").json() == {"live": True, "ready": True}
    assert get(f"{MODEL}/ready").json() == {"name": "digits", "ready": True}
    assert get(f"{MODEL}/versions/1/ready").json() == {"name": "digits", "ready": True}
    new = get("/v2/models/new/ready")
    assert (new.status_code, new.json()) == (503, {"name": "new", "ready": False})

    def gone(self: Registry) -> None:
        raise UnavailableError("the database is gone")

    monkeypatch.setattr(Registry, "reading", gone)
    monkeypatch.setattr(Registry, "check", gone)
    assert get("/v2/health/ready").json() == {"live": True, "ready": True}
    assert get(f"{MODEL}/ready").status_code == 200
    assert values(ask(ready, tensor(ROWS.tolist()))).shape == (2, 4)
    assert get(MODEL).json()["versions"] == ["1"]
    unloaded = get("/v2/models/never-asked-for")
    assert (unloaded.status_code, list(unloaded.json())) == (503, ["error"])


def test_loaded_models_have_metadata_while_the_registry_hangs(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes soon and lists only the loaded version."""
    ready.fitted(map="vector", promote=False)
    expected(ready)
    with hanging(ready.registry, monkeypatch) as queries:
        assert ready.client.get(MODEL).json()["versions"] == ["1"]
        assert ready.client.get(f"{MODEL}/ready").json() == {"name": "digits", "ready": True}
        assert queries == ["digits"]
    assert ready.client.get(MODEL).json()["versions"] == ["1", "2"]


def test_not_ready_before_a_calibrator_is_loaded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Registry) -> None:
        raise UnavailableError("the database is gone")

    monkeypatch.setattr(Registry, "check", gone)
    answer = service.client.get("/v2/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"live": True, "ready": False})
    assert service.client.get("/v2/health/live").json() == {"live": True, "ready": False}


GOOD = ROWS.tolist()
RAW = bytes_of(ROWS, "FP32")
SIZED = {"binary_data_size": len(RAW)}
#: The request, and the place that the error names.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "not JSON": ({"content": b"{"}, "body"),
    "no inputs": ({"json": {"inputs": []}}, "inputs: found none"),
    "two inputs": ({"json": {"inputs": [tensor(GOOD), tensor(GOOD)]}}, "inputs: found logits, log"),
    "requested output only": ({"json": {"outputs": [{"name": "y"}]}}, "inputs: found none"),
    "two outputs": ({"json": {"outputs": [tensor(GOOD, name="a"), tensor(GOOD, name="b")]}},
                    "inputs: found a, b"),
    "no data": ({"json": {"inputs": [tensor()]}}, "inputs[0].data: found nothing"),
    "too few": ({"json": {"inputs": [tensor([1, 2])]}}, "inputs[0].data: found 2 numbers"),
    "other rows": ({"json": {"inputs": [tensor([[1, 2], [3, 4]])]}}, "inputs[0].data: found shape"),
    "ragged": ({"json": {"inputs": [tensor([[1, 2, 3, 4], [3]])]}}, "inputs[0].data[1]: found 1"),
    "text": ({"json": {"inputs": [tensor([["1", 2, 3, 4]])]}}, "inputs[0].data[0][0]: found str"),
    "NaN": ({"content": b'{"inputs":[{"name":"logits","shape":[1,1],"datatype":"FP32",'
                        b'"data":[NaN]}]}'}, "body: found JSON is malformed"),
    "integers": ({"json": {"inputs": [tensor(GOOD, datatype="INT32")]}}, "inputs[0].datatype"),
    "BF16 in JSON": ({"json": {"inputs": [tensor(GOOD, datatype="BF16")]}}, "inputs[0].datatype"),
    "one axis": ({"json": {"inputs": [tensor([1] * 8, shape=[8])]}}, "inputs[0].shape: found [8]"),
    "no rows": ({"json": {"inputs": [tensor([], shape=[0, 4])]}}, "inputs[0].shape"),
    "below zero": ({"json": {"inputs": [tensor(GOOD, shape=[-2, -4])]}}, "inputs[0].shape"),
    "other K": ({"json": {"inputs": [tensor([[1, 2]], shape=[1, 2])]}}, "logits: found"),
    "another output": (
        {"json": {"inputs": [tensor(GOOD)], "outputs": [{"name": "y"}]}}, "outputs: found y"
    ),
    "classification": (
        {"json": {"inputs": [tensor(GOOD)], "outputs": [
            {"name": "probabilities", "parameters": {"classification": 2}}]}},
        "classification",
    ),
    "input unknown": (
        {"json": {"inputs": [tensor(GOOD)], "parameters": {"input": "odds"}}}, "parameters.input"
    ),
    "length not a number": (
        {"json": {"inputs": [tensor(GOOD)]}, "headers": {LENGTH: "x"}}, LENGTH
    ),
    "length too long": (
        {"json": {"inputs": [tensor(GOOD)]}, "headers": {LENGTH: "99999"}}, LENGTH
    ),
    "length below zero": (
        {"json": {"inputs": [tensor(GOOD)]}, "headers": {LENGTH: "-1"}}, LENGTH
    ),
    "bytes cut": (binary({"inputs": [tensor(parameters=SIZED)]}, RAW[:-1]), "binary_data_size"),
    "bytes left over": (
        binary({"inputs": [tensor(parameters=SIZED)]}, RAW, b"x"), "binary_data_size"
    ),
    "bytes unannounced": (binary({"inputs": [tensor()]}, RAW), "inputs[0].parameters"),
    "size of another type": (
        binary({"inputs": [tensor(parameters={"binary_data_size": "32"})]}, RAW),
        "binary_data_size",
    ),
    "size of another datatype": (
        binary({"inputs": [tensor(datatype="FP64", parameters=SIZED)]}, RAW), "binary_data_size"
    ),
    "data twice": (
        binary({"inputs": [tensor(GOOD, parameters=SIZED)]}, RAW), "data and binary_data_size"
    ),
    "no gzip": (
        {"content": b"{}", "headers": {"Content-Encoding": "gzip"}}, "body"
    ),
    "gzip cut": (
        {"content": gzip.compress(b"{}" * 999)[:-9], "headers": {"Content-Encoding": "gzip"}},
        "gzip cut short",
    ),
    "deep data": (
        {"content": b'{"inputs":[{"name":"logits","shape":[1,1],"datatype":"FP32","data":'
                    + b"[" * 9999 + b"]" * 9999 + b"}]}"}, "body"
    ),
    "nested": ({"content": b'{"inputs":' + b"[" * 9999}, "inputs[0]: found array"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_bad_request(shared: Service, case: str) -> None:
    """400 with one sentence under `error` that names the place."""
    request, place = BAD[case]
    answer = shared.client.post(INFER, **request)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]
    assert place in answer.json()["error"]


def test_every_documented_error_occurs(ready: Service) -> None:
    ready.model("new", classes=2, serve_uncalibrated=False)
    good = {"json": {"inputs": [tensor(GOOD)]}}
    long, bomb = {"content": b" " * 100_001}, gzip.compress(b" " * 2_000_000)
    packed = {"headers": {"Content-Encoding": "br"}, "content": b"x"}
    provoked: dict[tuple[str, int], tuple[str, str, dict[str, Any]]] = {
        ("v2_model", 404): ("GET", "/v2/models/unknown", {}),
        ("v2_model", 409): ("GET", "/v2/models/new", {}),
        ("v2_model_version", 400): ("GET", f"{MODEL}/versions/x", {}),
        ("v2_model_version", 404): ("GET", f"{MODEL}/versions/9", {}),
        ("v2_model_ready", 404): ("GET", "/v2/models/unknown/ready", {}),
        ("v2_model_version_ready", 400): ("GET", f"{MODEL}/versions/0/ready", {}),
        ("v2_model_version_ready", 404): ("GET", f"{MODEL}/versions/9/ready", {}),
        ("v2_infer", 400): ("POST", INFER, {"content": b"x"}),
        ("v2_infer", 404): ("POST", "/v2/models/unknown/infer", good),
        ("v2_infer", 409): ("POST", "/v2/models/new/infer", good),
        ("v2_infer", 413): ("POST", INFER, long),
        ("v2_infer", 415): ("POST", INFER, packed),
        ("v2_infer_version", 400): ("POST", f"{MODEL}/versions/1/infer", {"content": b"x"}),
        ("v2_infer_version", 404): ("POST", f"{MODEL}/versions/9/infer", good),
        ("v2_infer_version", 413): (
            "POST",
            f"{MODEL}/versions/1/infer",
            {"content": bomb, "headers": {"Content-Encoding": "gzip"}},
        ),
        ("v2_infer_version", 415): ("POST", f"{MODEL}/versions/1/infer", packed),
    }
    promised = {
        (name, int(status))
        for name, operation in operations(ready.client.app.openapi()).items()
        for status in operation["responses"]
        # Errors of keys are tested in test_access.py and test_limits.py, 421 in test_browsers.py.
        if name.startswith("v2_")
        and 400 <= int(status) < 500
        and int(status) not in (401, 403, 421, 429)
    }
    assert promised == set(provoked)
    for (name, status), (verb, path, more) in provoked.items():
        answer = ready.client.request(verb, path, **more)
        assert answer.status_code == status, (name, status, answer.text)
        assert list(answer.json()) == ["error"], (name, status)


@pytest.mark.parametrize(("verb", "path", "status"), [
    ("GET", "/v2/nowhere", 404), ("PUT", INFER, 405), ("POST", "/v2/health/live", 405),
])  # fmt: skip
def test_other_paths_and_methods_are_rejected(
    shared: Service, verb: str, path: str, status: int
) -> None:
    answer = shared.client.request(verb, path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_internal_errors_are_json(ready: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise KeyError("us")

    monkeypatch.setattr("service.calibration.check_logits", broken)
    answer = ask(ready, tensor(GOOD))
    assert answer.status_code == 500
    assert answer.json() == {"error": "An unexpected error; the server's log has it."}
