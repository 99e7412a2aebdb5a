"""Files of Google Cloud Storage, by an emulator: the results of local files.

gcsfs and the emulator are in an environment without the requirements that the development
environment has (`make clients`); the script runs with both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recalib.scale
from recalib.scale import row_sample
from tests.fitting.conftest import draw
from tests.requirements import client_packages

_ROOT = Path(__file__).resolve().parents[2]
_PARTS = 4


@pytest.mark.slow
def test_files_of_google_cloud_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = client_packages("gcs")
    logits, labels = draw(400, 4, 3.0)
    for part in range(_PARTS):
        rows = slice(100 * part, 100 * part + 100)
        np.savez(tmp_path / f"{part}.npz", logits=logits[rows], labels=labels[rows])
    run = subprocess.run(
        [sys.executable, "-m", "tests.clients.with_gcs", str(tmp_path)],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": packages, "HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").unlink()
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 100)
    calibrator = recalib.scale.fit(tmp_path, "vector")
    assert results["parameters"] == {
        name: value.tolist() for name, value in calibrator.parameters.items()
    }
    metrics = recalib.scale.evaluate(tmp_path, calibrator=calibrator).finish()
    assert results["metrics"] == {name: estimate.value for name, estimate in metrics.items()}
    assert results["runs"] == [[400, 4, 0], [400, 4, 4], [400, 4, 3]]
    parts = [f"recalib/out/part-{part:05d}.parquet" for part in range(_PARTS)]
    manifest = "recalib/out/_manifest.json"
    assert results["names"] == [manifest, *parts]
    # One upload for each object; the manifest is written first, and at the end of each run.
    assert results["written"] == [manifest, *parts, manifest, manifest, parts[3], manifest]
    assert results["missing"].startswith("data: found gs://recalib/missing/")
