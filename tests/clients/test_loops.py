"""The loops of docs/training.md: what their own loggers hold, and the rows of two processes.

Lightning is in the development environment; the others and the loggers are in environments without
torch (`make clients`), and the script runs with all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recalib
from recalib.files import read
from tests.requirements import client_packages

_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENTS = ("transformers", "loggers", "mlflow")

pytestmark = pytest.mark.slow


def run(folder: Path, loop: str, *torchrun: str) -> list[dict[str, float]]:
    """Run the script; return the lines of `metrics.jsonl`."""
    packages = map(client_packages, _ENVIRONMENTS)
    process = subprocess.run(
        [sys.executable, *torchrun, "-m", "tests.clients.with_loops", str(folder), loop],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *packages])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    (file,) = (folder / "runs").rglob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("loop", ["lightning", "transformers", "accelerate"])
def test_loggers_hold_what_the_folder_holds(loop: str, tmp_path: Path) -> None:
    lines = run(tmp_path, loop)
    values = [line["ece"] for line in lines]
    assert len(lines) >= 2
    logged = json.loads((tmp_path / "logged.json").read_text())
    assert sorted(logged["mlflow"]) == pytest.approx(sorted(values), abs=1e-6)
    assert sorted(logged["tensorboard"]) == pytest.approx(sorted(values), abs=1e-6)
    for value in values:
        assert str(value)[:6] in logged["wandb"]


@pytest.mark.parametrize(("loop", "rows"), [("transformers", 101), ("accelerate", 500)])
def test_two_processes_record_each_row_once(loop: str, rows: int, tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    last = run(tmp_path, loop, *torchrun)[-1]
    (file,) = (tmp_path / "runs").rglob("validation.npz")
    data = read(file)
    assert len(data.labels) == rows
    assert recalib.evaluate(data.labels, logits=data.logits)["nll"] == last["nll"]
    fitted = recalib.load(file.with_name("calibrator.calib")).predict(data.logits)
    expected = recalib.fit(data.logits, data.labels).predict(data.logits)
    np.testing.assert_array_equal(fitted, expected)
