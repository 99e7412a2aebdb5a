"""`map_batches` in Spark and Ray, which are too large to install for every run.

`make engines` installs each with Recalib into a separate environment; Spark needs Java 17. A script
calibrates rows and evaluates them in batches; its results are those of the library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import recalib
from tests.fitting.conftest import draw

_HERE = Path(__file__).resolve().parent
_ENVIRONMENTS = _HERE.parent.parent / ".venv-clients"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["spark", "ray_data"])
def test_batches_of_an_engine(engine: str, tmp_path: Path) -> None:
    python = _ENVIRONMENTS / engine / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"no environment of {engine} (make engines)")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("no Java (Debian package openjdk-17-jre-headless)")
    logits, labels = draw(400, 4, 3.0)
    logits = logits.astype(np.float32)
    calibrator = recalib.fit(logits, labels, map="vector")
    calibrator.save(tmp_path / "a.calib")
    process = subprocess.run(
        [str(python), str(_HERE / f"with_{engine}.py"), str(tmp_path / "a.calib")],
        input=json.dumps({"logits": logits.tolist(), "labels": labels.tolist()}),
        env=os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "200"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    probabilities = calibrator.predict(logits)
    expected = recalib.StreamingEvaluation(4)
    expected.add(labels, probabilities=probabilities)
    results = json.loads(process.stdout.splitlines()[-1])
    assert results
    for result in results.values():
        np.testing.assert_allclose(result["probabilities"], probabilities, rtol=1e-5, atol=1e-7)
        assert result["parts"] > 1
        for name, estimate in expected.finish().items():
            assert result["metrics"][name] == pytest.approx(estimate.value, rel=1e-4, abs=1e-6)
