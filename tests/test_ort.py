"""onnxruntime sends no telemetry and writes no files when Recalib loads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent
_SESSION = """
import numpy as np, recalib
calibrator = recalib.fit(np.eye(4), np.arange(4), map="temperature")
calibrator.session.run(None, {"logits": np.eye(4, dtype=np.float32)})
"""
_SERVER = """
from service.serving.loaded_calibrators import warm_up
warm_up()
"""


def stored_files(code: str, folder: Path) -> list[str]:
    """Return the files that a program writes to its user's home.

    It has no variable but those named here: in CI, onnxruntime sends no telemetry by default.
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(_ROOT)}
    subprocess.run([sys.executable, "-B", "-c", code], env=environment, cwd=folder, check=True)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_onnxruntime_stores_no_telemetry(tmp_path: Path) -> None:
    """Neither the library's session nor the server's; one module loads onnxruntime for both."""
    assert stored_files(_SESSION + _SERVER, tmp_path) == []


def test_unprotected_onnxruntime_stores_telemetry(tmp_path: Path) -> None:
    """Fails once onnxruntime needs no such protection any more."""
    assert any("deviceid" in name for name in stored_files("import onnxruntime", tmp_path))


def test_onnxruntime_is_imported_in_one_module() -> None:
    loads = re.compile(r"^\s*(import onnxruntime|from onnxruntime)|import_module\(.onnxruntime")
    modules = {
        str(path.relative_to(_ROOT))
        for package in ("recalib", "service", "training")
        for path in (_ROOT / package).rglob("*.py")
        if any(loads.search(line) for line in path.read_text().splitlines())
    }
    assert modules == {"recalib/calibrator/ort.py"}
