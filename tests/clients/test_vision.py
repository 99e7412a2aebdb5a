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

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def results(package: str, environment: str, folder: Path) -> dict[str, Any]:
    packages = list((_ROOT / ".venv-clients" / environment).glob("lib/python*/site-packages"))
    if not packages:
        assert "clients" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip(f"no environment of {environment} (make clients)")
    process = subprocess.run(
        [sys.executable, "-m", "tests.clients.with_vision", str(folder), package],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(packages[0])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    answer: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return answer


def test_torchvision(tmp_path: Path) -> None:
    """A network with random weights, and a new head on saved ones; a data set of torchvision."""
    runs = results("torchvision", "vision", tmp_path)
    assert set(runs) == {"random", "head"}
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
