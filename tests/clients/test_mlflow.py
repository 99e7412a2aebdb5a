"""A calibrator in MLflow: a real tracking server on SQLite, and `mlflow models serve`.

MLflow is in an environment without its requirements (`make clients`), most of which the development
environment has; programs run with both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.containers import free_port
from tests.requirements import CLIENTS, client_packages

_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = CLIENTS / "mlflow"
#: Many times what a quiet machine needs to start a server.
_START_SECONDS = 180.0

pytestmark = pytest.mark.slow


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Environment variables of programs that use MLflow."""
    packages = client_packages("mlflow")
    own = [path for path in sys.path if path.endswith("site-packages")]
    paths = [_ENVIRONMENT / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [packages, *own, _ROOT])),
        "PATH": os.pathsep.join(map(str, paths)),
        "HOME": str(tmp_path),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


@contextmanager
def running(
    command: list[str], url: str, variables: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program of MLflow, and wait until it answers at a URL."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_ENVIRONMENT / "bin" / "mlflow"), *command],
            stdout=output, stderr=output, env=variables, cwd=log.parent, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):  # its workers too
            os.killpg(process.pid, 9)
        process.wait()


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(  # noqa: S310
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read())


def test_calibrator_is_tracked_registered_and_served(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    tracking, serving = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    artifacts, results = tmp_path / "artifacts", tmp_path / "results.json"
    server = [
        "server", "--host", "127.0.0.1", "--port", tracking.rpartition(":")[2], "--workers", "1",
        "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db",
        "--artifacts-destination", str(artifacts),
    ]  # fmt: skip
    with running(server, f"{tracking}/health", variables, tmp_path / "server.log"):
        process = subprocess.run(
            [sys.executable, "-m", "tests.clients.with_mlflow", tracking, str(results)],
            cwd=_ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        answers = json.loads(results.read_text())
        expected = np.array(answers["expected"])
        assert answers["equal"]
        np.testing.assert_allclose(answers["array"], expected, atol=1e-12)
        np.testing.assert_allclose(answers["frame"], expected, atol=1e-12)
        assert answers["recorded"] == answers["ece"]
        pictures = {"test_reliability_diagram.png", "test_reliability_diagram.html"}
        assert pictures <= set(answers["artifacts"])
        assert '"shape": [-1, 4]' in answers["signature"]["inputs"]
        assert {"MLmodel", "calibrator.calib"} <= set(answers["files"])
        stored = [path.name for path in artifacts.rglob("*") if path.is_file()]
        assert "calibrator.calib" in stored
        assert not [name for name in stored if name.endswith((".pkl", ".pickle", ".joblib"))]

        serve = [
            "models", "serve", "-m", "models:/digits/1", "--env-manager", "local",
            "-h", "127.0.0.1", "-p", serving.rpartition(":")[2],
        ]  # fmt: skip
        variables["MLFLOW_TRACKING_URI"] = tracking
        with running(serve, f"{serving}/ping", variables, tmp_path / "serve.log"):
            answer = post(f"{serving}/invocations", {"inputs": answers["logits"]})
            np.testing.assert_allclose(answer["predictions"], expected, atol=1e-9)
            with pytest.raises(urllib.error.HTTPError) as raised:
                post(f"{serving}/invocations", {"inputs": [[1.0, 2.0]]})
            raised.value.close()
            assert raised.value.code == 400
