"""Clients of other projects from PyPI against a real server process.

Each has a separate environment, since its pins conflict with Recalib's; `make
test` creates them (`.venv-clients`). A script sends requests, and its responses are compared with
the library's results.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from service.grpc.generated.recalib.v2wire import inference_pb2
from tests.end_to_end.programs import Programs, Server
from tests.fitting.conftest import draw

_HERE = Path(__file__).resolve().parent
_ENVIRONMENTS = _HERE.parent.parent / ".venv-clients"

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
            server.model("empty")
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
    python = _ENVIRONMENTS / name / "bin" / "python"
    if not python.is_file():
        assert "clients" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip(f"no environment of {name}'s client (make clients)")
    process = subprocess.run(
        [str(python), str(_HERE / f"with_{name}.py"), server.url, server.grpc_url],
        input=json.dumps(ROWS.tolist()),
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
