"""Losses of a whole batch over processes: as one process with all rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recalib.losses import WHOLE_BATCH

pytestmark = pytest.mark.slow


def test_eight_processes_have_the_value_and_gradient_of_one() -> None:
    """DistributedDataParallel over gloo in float64, with parts of different lengths."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.losses.eight_processes"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    differences = json.loads(process.stdout)
    assert set(differences) == {*WHOLE_BATCH, "crl, released", "sb_ece, ignored rows"}
    for name, of_loss in differences.items():
        assert of_loss["value"] < 1e-9, name
        assert of_loss["gradient"] < 1e-9, name
        # A loss of the rows of each process alone is another one.
        assert of_loss["without gather"] > 1e-3, name
