"""The wheel in a fresh environment of each supported Python that this machine has.

Extras are added one after another, those with the fewest packages first, and each is tried before
the next. `test_base.py` hides all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.fitting.conftest import draw
from tests.supply.requirements import ROOT

pytestmark = pytest.mark.slow

_UV = Path(sys.executable).with_name("uv")
_VERSIONS = ("3.11", "3.12", "3.13")
#: MB of a new environment without an extra.
_BASE_SIZE = 300


def _interpreter(version: str) -> str:
    """Return the program of a Python version, of the PATH or of pyenv; skip without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    if program := next(map(str, found), shutil.which(f"python{version}")):
        return program
    pytest.skip(f"no Python {version}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("recalib", "service", "training"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run([_UV, "build", "--quiet", "--wheel", "--out-dir", folder, source], check=True)
    return next(folder.glob("*.whl"))


class Environment:
    """An environment of a Python with the wheel, in a folder with the files that commands read."""

    def __init__(self, interpreter: str, wheel: Path, folder: Path) -> None:
        self._wheel, self._folder, self.root = wheel, folder, folder / "environment"
        path = os.environ["PATH"]
        self.variables = {"PATH": path, "HOME": str(folder), "RECALIB_HOME": str(folder / "home")}
        subprocess.run([_UV, "venv", "--quiet", "--python", interpreter, self.root], check=True)
        logits, labels = draw(400, 3, 2.0)
        np.savez(folder / "val.npz", logits=logits, labels=labels)
        rows = np.column_stack([logits, labels])
        header = "logit_0,logit_1,logit_2,labels"
        np.savetxt(folder / "val.csv", rows, delimiter=",", header=header, comments="")

    def install(self, extras: str = "") -> None:
        """Install the wheel with these extras only, or add them."""
        command = [_UV, "pip", "install", "--quiet", "--python", self.root / "bin" / "python"]
        requirement = f"recalib[{extras}] @ {self._wheel.as_uri()}"
        subprocess.run([*command, "-c", ROOT / "constraints.txt", requirement], check=True)

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        """Run a program of the environment, and return its output."""
        process = subprocess.run(
            [self.root / "bin" / program, *arguments],
            cwd=self._folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == status, process.stderr
        return process.stdout + process.stderr


@pytest.mark.parametrize("version", _VERSIONS)
def test_documented_commands_run(version: str, wheel: Path, tmp_path: Path) -> None:
    environment = Environment(_interpreter(version), wheel, tmp_path)
    run = environment.run
    environment.install()
    blocks = (path.lstat().st_blocks for path in environment.root.rglob("*"))
    assert sum(blocks) * 512 < _BASE_SIZE * 1_000_000
    run("recalib", "fit", "val.npz", "--map", "auto", "-o", "best.calib")
    run("recalib", "apply", "best.calib", "val.npz", "-o", "out.npz")
    text = run("recalib", "fit", "val.csv", "-o", "c.calib", status=2)
    assert "pip install 'recalib[tables]'" in text

    environment.install("client")
    run("python", "-c", "from recalib.client import Client; Client('http://127.0.0.1:9')")
    environment.install("pictures")
    run("recalib", "evaluate", "val.npz", "--diagram", "diagram.svg")
    environment.install("sklearn")
    run("python", "-c", _SKLEARN)
    environment.install("onnx")
    run("recalib", "export", "best.calib", "-o", "best.onnx")
    environment.install("tables")
    run("recalib", "fit", "val.csv", "-o", "c.calib")
    environment.install("serve")
    _calibrate_through_a_server(environment)


_SKLEARN = """
import numpy as np
from sklearn.naive_bayes import GaussianNB
from recalib.sklearn import CalibratedClassifier
with np.load("val.npz") as data:
    X, y = data["logits"], data["labels"]
assert CalibratedClassifier(GaussianNB()).fit(X, y).predict_proba(X).shape == (400, 3)
"""
_CLIENT = """
import sys
from recalib.client import Client
with Client(sys.argv[1]) as client:
    client.create_model("m", 3)
    client.upload_dataset("m", "val", "val.npz")
    client.wait(client.fit("m", "val"))
    assert client.calibrate("m", [[0.0, 1.0, 2.0]]).shape == (1, 3)
"""


def _calibrate_through_a_server(environment: Environment) -> None:
    command = [environment.root / "bin" / "recalib", "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--grpc-port", "0"], env=environment.variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            environment.run("python", "-c", _CLIENT, json.loads(server.stdout.readline())["url"])
        finally:
            server.terminate()


def test_declared_versions_are_what_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = "Programming Language :: Python :: "
    assert project["classifiers"] == [f"{python}{version}" for version in _VERSIONS]
    assert project["requires-python"] == f">={_VERSIONS[0]}"
