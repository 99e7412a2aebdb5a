"""The adapter for CalArena takes what its `run_benchmark.py` hands to a calibrator."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import recalib

_FILE = Path(__file__).parents[2] / "examples" / "calarena" / "custom_calibrators.py"


@pytest.mark.parametrize("classes", [2, 3])
def test_adapter_fits_float32_probabilities(classes: int) -> None:
    """One column of P(y = 1) for two classes; the result is that of `recalib.fit`."""
    rng = np.random.default_rng(0)
    p = scipy.special.softmax(3 * rng.normal(size=(400, classes)), axis=1).astype(np.float32)
    if classes == 2:
        p[:, 0] = 1 - p[:, 1]
    y = (p.cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)
    given = p[:, 1] if classes == 2 else p
    calibrator = runpy.run_path(str(_FILE))["CUSTOM_CALIBRATORS"]["Recalib-vector"]()
    calibrator.fit(given[:300], y[:300])
    expected = recalib.fit(np.log(p[:300].astype(float)), y[:300], "vector")
    np.testing.assert_allclose(
        calibrator.predict_proba(given[300:]),
        expected.predict(np.log(p[300:].astype(float))),
        atol=1e-5,  # sums of float32
    )
