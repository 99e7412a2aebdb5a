"""A cluster of Ray as an executor: the results of this process, also after workers are killed.

Ray is in an environment without its requirements (`make clients`), which the development
environment has; the script runs with both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import recalib.scale
from recalib.scale import row_sample
from tests.fitting.conftest import draw

_ROOT = Path(__file__).resolve().parents[2]
#: Many times what a quiet machine needs for all, and for the end.
_PATIENCE_SECONDS, _END_SECONDS = 900.0, 100.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_cluster_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts once, which takes a minute on a busy machine."""
    packages = list((_ROOT / ".venv-clients" / "ray").glob("lib/python*/site-packages"))
    if not packages:
        assert "clients" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip("no environment of Ray (make clients)")
    logits, labels = draw(400, 4, 3.0)
    np.savez(tmp_path / "invalid.npz", logits=logits, labels=labels + 4)
    (tmp_path / "parts").mkdir()
    for part in range(8):
        index = slice(50 * part, 50 * part + 50)
        values = {"logits": logits[index], "labels": labels[index]}
        np.savez(tmp_path / "parts" / f"{part}.npz", **values)
    results = _run(packages[0], tmp_path)
    assert results["count"] == 2
    assert results["killed"] == 1
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 100)
    expected = recalib.scale.fit(tmp_path / "parts", "vector")
    for name, value in expected.parameters.items():
        assert results["parameters"][name] == value.tolist()
    metrics = recalib.scale.evaluate(tmp_path / "parts").finish()
    assert results["metrics"] == {name: estimate.value for name, estimate in metrics.items()}
    assert results["progress"] == list(range(1, 9))
    assert results["repeated"] == [7, 7, 7]
    assert results["ended"].startswith("UnavailableError: workers of Ray end while")
    assert results["error"].startswith(f"InputError: {tmp_path}/invalid.npz: labels")
    assert results["after_cancel"] == [1, 2]
    assert (tmp_path / "absent.interrupted").exists()


def _run(packages: Path, folder: Path) -> dict[str, Any]:
    """Run the script until it has written its results, then interrupt it."""
    variables = {"PYTHONPATH": str(packages), "HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.with_ray_cluster", str(folder)],
            cwd=_ROOT,
            env=os.environ | variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    programs = [psutil.Process(process.pid)]
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (folder / "results.json").exists() and process.poll() is None:
            assert time.monotonic() < deadline, (folder / "output").read_text()[-4000:]
            time.sleep(0.2)
        assert process.poll() is None, (folder / "output").read_text()[-4000:]
        programs += programs[0].children(recursive=True)
        assert len(programs) > 2
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_END_SECONDS)
        assert process.returncode != 0
        assert not psutil.wait_procs(programs, timeout=_END_SECONDS)[1]
    finally:
        if process.poll() is None:
            programs = [*programs[0].children(recursive=True), programs[0]]
        for program in programs:
            if program.is_running():
                program.kill()
        process.wait(_END_SECONDS)
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results
