"""The estimated memory of a loaded calibrator."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only]


@pytest.mark.parametrize("calibrator", ["small", "large"])
def test_estimated_size_matches_process_growth(calibrator: str) -> None:
    """Measured in a separate process, with calls: a session must not keep its largest batch."""
    code = """
import gc, sys, numpy as np, psutil
from recalib.calibrator import Calibrator
from recalib.maps import MAPS
from recalib.core.options import configure
import msgspec
from recalib.registry import Model, MonitoringSettings
from service.serving.traffic import Traffic
from service.serving.loaded_calibrators import _prepare
from tests.service.test_loaded_calibrators import parameter_file

def prepared(contents):
    model = Model(1, "m", 3, None, 1, "anna", 0.0, MonitoringSettings())
    return _prepare(Traffic(), model, 1, contents)

def grown(contents, rows, classes):
    logits = np.zeros((rows, classes), np.float32)
    for _ in range(5):
        prepared(contents).run(logits)
    gc.collect()
    before = psutil.Process().memory_info().rss
    calibrators = [prepared(contents) for _ in range(count)]
    for calibrator in calibrators:
        calibrator.run(logits)
    after = psutil.Process().memory_info().rss
    return (after - before) / sum(calibrator.size for calibrator in calibrators)

small = parameter_file(1.5)
if sys.argv[1] == "small":
    count = 300
    print(grown(small, 20_000, 3))
else:
    card = msgspec.structs.replace(Calibrator.from_bytes(small).card, map="matrix", classes=500)
    parameters = configure(MAPS, "matrix", {}, field="map").start(500, 1.5)
    count = 12
    print(grown(Calibrator(parameters, card).to_bytes(), 200, 500))
"""
    process = subprocess.run(
        [sys.executable, "-c", code, calibrator], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert 0.3 < float(process.stdout) < 1.3, process.stdout
