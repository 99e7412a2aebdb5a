"""A model of transformers with a calibrator: module, pipeline and trainer.

transformers is in an environment without torch (`make clients`); the script runs with both.
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
from tests.requirements import client_packages

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_transformers_returns_what_recalib_computes(tmp_path: Path) -> None:
    packages = client_packages("transformers")
    process = subprocess.run(
        [sys.executable, "-m", "tests.clients.with_transformers", str(tmp_path)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    expected = np.array(results["predicted"])
    assert np.ptp(expected, axis=0).max() > 0.01
    np.testing.assert_allclose(results["module"], expected, atol=1e-6)
    names = ["positive", "negative", "neutral"]
    for answer, row in zip(results["pipeline"], expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        np.testing.assert_allclose([scores[name] for name in names], row, atol=1e-5)
    assert results["one"] == results["pipeline"][0][:2]
    metrics = ["accuracy", "nll", "brier", "ece"]
    evaluated = recalib.evaluate(results["labels"], logits=results["logits"], metrics=metrics)
    by_trainer = {name: results["trainer"][f"eval_{name}"] for name in metrics}
    assert by_trainer == pytest.approx(evaluated, abs=1e-5)
    (before, after), (_, after_parts) = results["objectives"]
    assert after < 0.8 * before
    assert after_parts == pytest.approx(after, rel=1e-4)
