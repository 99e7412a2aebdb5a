"""The example of a language model runs, on text that scikit-learn ships."""

from __future__ import annotations

import runpy
from pathlib import Path

_FILE = Path(__file__).parents[2] / "examples" / "language_model.py"


def test_calibration_improves_a_language_model() -> None:
    comparison = runpy.run_path(str(_FILE))["compare"](200)
    before, after = comparison["language model"], comparison["calibrated"]
    assert after["accuracy"].value == before["accuracy"].value > 0.3
    assert after["nll"].value < before["nll"].value / 2
    assert after["ece"].value < before["ece"].value / 2
