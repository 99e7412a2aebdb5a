"""Predictions without onnxruntime, as docs/install.md states them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import recalib
from recalib.calibrator import calibrator as module
from recalib.errors import RecalibWarning
from recalib.maps import MAPS
from tests.fitting.conftest import draw

#: They divide what the top label leaves among the other classes.
_CURVES = ("isotonic", "spline", "histogram_binning")


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
def test_predictions_by_numpy_are_those_of_onnxruntime(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32. A score on a step of `venn_abers` may be on either side of it."""
    logits, labels = draw(600, 4, 2.0)
    rows = draw(3000, 4, 2.0, seed=1)[0].astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecalibWarning)
        calibrator = recalib.fit(logits, labels, name)
    expected = calibrator.predict(rows)
    monkeypatch.setattr(module, "has_onnxruntime", lambda: False)
    difference = np.abs(calibrator.predict(rows) - expected)
    if name == "venn_abers":
        difference = np.sort(difference, axis=None)[: int(0.99 * difference.size)]
    assert difference.max() <= (1e-5 if name in _CURVES else 1e-6)
