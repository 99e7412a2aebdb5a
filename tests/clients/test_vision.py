"""Networks of torchvision, timm and transformers in recipes, by the names of their factories.

torchvision and timm are in an environment without torch, as transformers is (`make clients`); the
script runs with both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

from tests.requirements import client_packages

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def run(environment: str, arguments: list[str]) -> None:
    packages = client_packages(environment)
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert process.returncode == 0, process.stderr


def results(package: str, environment: str, folder: Path) -> dict[str, Any]:
    run(environment, ["-m", "tests.clients.with_vision", str(folder), package])
    answer: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return answer


def test_torchvision(tmp_path: Path) -> None:
    """A network with random weights, and a new head on saved ones; data sets of torchvision."""
    runs = results("torchvision", "vision", tmp_path)
    assert set(runs) == {"random", "head", "folder"}
    assert runs["folder"]["classes"] == ["cat", "dog", "owl"]
    loaded = runs["head"]["weights"]
    assert [name.split()[0] for name in loaded["not_loaded"]] == ["fc.weight", "fc.bias"]
    weights = safetensors.numpy.load_file(tmp_path / "head" / "weights.safetensors")
    assert weights["fc.weight"].shape == (3, 512)


def test_timm(tmp_path: Path) -> None:
    runs = results("timm", "vision", tmp_path)
    assert runs["random"]["epochs"] == 1
    weights = safetensors.numpy.load_file(tmp_path / "timm" / "weights.safetensors")
    assert weights["classifier.weight"].shape[0] == 3


def test_transformers_from_local_folders(tmp_path: Path) -> None:
    """Texts as dictionaries with names as labels, and images; the saved heads had five classes."""
    runs = results("transformers", "transformers", tmp_path)
    assert runs["bert"]["classes"] == ["few", "many"]
    weights = safetensors.numpy.load_file(tmp_path / "run-vit" / "weights.safetensors")
    assert weights["classifier.weight"].shape == (3, 8)
