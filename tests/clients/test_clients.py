"""Clients of other projects from PyPI against a real server process.

Each has a separate environment, since its pins conflict with Recalib's; `make
test` creates them (`.venv-clients`). A script sends requests, and its responses are compared with
the library's results.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from numpy.typing import NDArray
from onnxruntime import InferenceSession

import recalib
from recalib.calibrator import Calibrator
from recalib.onnx_fusion.triton import write_repository
from service.grpc.generated.recalib.v2wire import inference_pb2
from tests.end_to_end.programs import Programs, Server
from tests.fitting.conftest import draw
from tests.onnx_fusion.models import FEATURES, classifier, save
from tests.requirements import client_python

_HERE = Path(__file__).resolve().parent

ROWS = draw(40, 4, 3.0)[0].astype(np.float32).astype(np.float64)
#: Error of float16: logits of some tens are rounded to hundredths.
TOLERANCES = {"FP16": 2e-2, "BF16": 1e-1}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clients")
    programs = Programs(folder)
    try:
        with programs.serve() as server:
            server.model()
            server.upload(*draw(400, 4, 3.0))
            server.finished(server.ask_fit())
            server.model("empty", serve_uncalibrated=False)
            yield server
    finally:
        programs.clean_up()


@pytest.fixture(scope="module")
def expected(server: Server, tmp_path_factory: pytest.TempPathFactory) -> NDArray[Any]:
    """Probabilities of the library with the served parameters."""
    path = tmp_path_factory.mktemp("parameters") / "one.calib"
    path.write_bytes(server.client.get("/v1/models/digits/calibrators/1/parameters").content)
    return Calibrator.load(path).predict(ROWS)


def answers_of(name: str, server: Server) -> Any:
    """Run the script of a client and return its output."""
    script = str(_HERE / f"with_{name}.py")
    return run_in(name, [script, server.url, server.grpc_url], json.dumps(ROWS.tolist()))


def run_in(name: str, command: list[str], text: str) -> Any:
    """Run a script in the environment of a client and return its output."""
    process = subprocess.run(
        [client_python(name), *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def check(answers: dict[str, Any], expected: NDArray[Any]) -> None:
    """Every response has the probabilities, and an unknown model gives an error."""
    for case, probabilities in answers["probabilities"].items():
        tolerance = TOLERANCES.get(case.split()[0], 1e-5)
        np.testing.assert_allclose(probabilities, expected, atol=tolerance, err_msg=case)
    assert "model 'nobody' does not exist" in answers.get("error", "model 'nobody' does not exist")
    assert all(answers.get("ready", [])), answers["ready"]
    assert not any(answers.get("unready", []))
    assert answers.get("id", "seven") == "seven"


@pytest.fixture(scope="module")
def triton(server: Server) -> Any:
    return answers_of("triton", server)


def test_triton(triton: Any, expected: NDArray[Any]) -> None:
    result = triton["clients"]
    assert set(result) == {"http", "grpc", "http.aio", "grpc.aio"}
    for answers in result.values():
        check(answers, expected)
    assert len(result["http"]["probabilities"]) == 14
    assert len(result["grpc"]["probabilities"]) == 8
    assert "NOT_FOUND" in result["grpc"]["error"]
    for answers in (result["http"], result["grpc"]):
        answer = answers["answer"]
        assert (answer["model_name"], answer["model_version"], answer["id"]) == (
            "digits", "1", "seven",
        )  # fmt: skip
        assert "has no champion" in answers["no champion"]
        assert "found 3" in answers["classes"]
        assert answers["server"] == "recalib"
        assert answers["model"]["name"] == "digits"
        assert answers["model"]["versions"] == ["1"]
        (tensor,) = answers["model"]["inputs"]
        assert tensor["name"] == "logits"
        assert tensor["datatype"] == "FP32"
        assert [int(size) for size in tensor["shape"]] == [-1, 4]


_PARSE = """
import json, pathlib, sys
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

configs = {}
for path in pathlib.Path(sys.argv[1]).glob("*/config.pbtxt"):
    config = text_format.Parse(path.read_text(), ModelConfig())
    configs[path.parent.name] = json_format.MessageToDict(config, preserving_proto_field_name=True)
print(json.dumps(configs))
"""


@pytest.mark.parametrize("max_batch_size", [0, 64])
def test_triton_reads_the_configurations_of_an_exported_ensemble(
    tmp_path: Path, max_batch_size: int
) -> None:
    """The steps connect the models as their ONNX files say, and compute what Recalib does."""
    model = save(classifier(output='a "b"'), tmp_path)
    calibrator = recalib.fit(*draw(300, 4, 3.0), "vector")
    repository = tmp_path / "models"
    write_repository(calibrator, repository, "m", model=model, max_batch_size=max_batch_size)
    configs = run_in("triton", ["-c", _PARSE, str(repository)], "")
    assert {config["name"] for config in configs.values()} == set(configs)
    x = np.random.default_rng(0).normal(size=(7, FEATURES)).astype(np.float32)
    values = {"x": x}
    for step in configs["m"]["ensemble_scheduling"]["step"]:
        config = configs[step["model_name"]]
        assert config["platform"] == "onnxruntime_onnx"
        session = InferenceSession(repository / step["model_name"] / "1" / "model.onnx")
        for tensors, declared in (
            (session.get_inputs(), config["input"]),
            (session.get_outputs(), config["output"]),
        ):
            shapes = {tensor.name: ["-1", str(tensor.shape[1])] for tensor in tensors}
            dims = {tensor["name"]: tensor["dims"] for tensor in declared}
            skipped = 1 if max_batch_size else 0
            assert dims == {name: shape[skipped:] for name, shape in shapes.items()}
            assert {tensor["data_type"] for tensor in declared} == {"TYPE_FP32"}
        feed = {name: values[value] for name, value in step["input_map"].items()}
        for name, value in step["output_map"].items():
            (values[value],) = session.run([name], feed)
    names = [tensor["name"] for tensor in configs["m"]["output"]]
    assert names == ["probabilities"]
    expected = calibrator.predict(values["scores"])
    np.testing.assert_allclose(values["probabilities"], expected, atol=1e-6)
    assert (repository / "m" / "1").is_dir()


def test_protobuf_names_do_not_conflict_with_triton(triton: Any) -> None:
    """Triton's messages load into the same process as ours, with equal wire format."""
    pool = descriptor_pool.Default()
    files = [FileDescriptorProto.FromString(base64.b64decode(text)) for text in triton["messages"]]
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    theirs = pool.FindFileByName(files[-1].name).message_types_by_name
    for ours in inference_pb2.DESCRIPTOR.message_types_by_name.values():
        same_on_the_wire(ours, theirs[ours.name])


def same_on_the_wire(ours: Any, theirs: Any) -> None:
    assert {field.number for field in ours.fields} == {field.number for field in theirs.fields}, (
        ours.name
    )
    for number, field in ours.fields_by_number.items():
        other = theirs.fields_by_number[number]
        attributes = (field.name, field.type, field.is_repeated, field.is_packed)
        assert attributes == (other.name, other.type, other.is_repeated, other.is_packed)
    for name, nested in ours.nested_types_by_name.items():
        same_on_the_wire(nested, theirs.nested_types_by_name[name])


def test_kserve(server: Server, expected: NDArray[Any]) -> None:
    result = answers_of("kserve", server)
    assert set(result) == {"rest", "grpc", "after a model"}
    check(result.pop("after a model"), expected)
    for answers in result.values():
        check(answers, expected)
        assert len(answers["probabilities"]) == 4


def test_mlserver(server: Server, expected: NDArray[Any]) -> None:
    result = answers_of("mlserver", server)
    assert set(result) == {"rest", "grpc", "after a model"}
    check(result.pop("after a model"), expected)
    for answers in result.values():
        check(answers, expected)
        assert len(answers["probabilities"]) == 8
