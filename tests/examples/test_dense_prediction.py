"""The dense prediction example runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[2] / "examples" / "dense_prediction.py"


@pytest.mark.slow
def test_example() -> None:
    """Temperature scaling improves the likelihood and keeps predictions."""
    example = runpy.run_path(str(_FILE))
    comparison = example["compare"](32, 1)
    assert list(comparison) == [
        "cross-entropy", "cross-entropy, calibrated",
        "focal 3 + SB-ECE", "focal 3 + SB-ECE, calibrated",
    ]  # fmt: skip
    for name in ("cross-entropy", "focal 3 + SB-ECE"):
        before, after = comparison[name], comparison[f"{name}, calibrated"]
        assert after["accuracy"].value == pytest.approx(before["accuracy"].value)
        assert after["nll"].value < before["nll"].value
