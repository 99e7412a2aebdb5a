"""Recalib's maps as calibrators of CalArena's `run_benchmark.py`: see the README beside this."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import recalib

__all__ = ["CUSTOM_CALIBRATORS", "RecalibCalibrator"]


class RecalibCalibrator:
    """A map of Recalib with the two methods that CalArena calls.

    Probabilities are (N,), those of class 1 of 2, or (N, K); labels are (N,) of 0 to K - 1.
    """

    def __init__(self, map: str, **options: Any) -> None:
        self.map, self.options = map, options

    def fit(self, probabilities: ArrayLike, labels: ArrayLike) -> RecalibCalibrator:
        """Fit the map to calibration rows."""
        self.calibrator_ = recalib.fit(
            _columns(probabilities), labels, self.map, input="probabilities", **self.options
        )
        return self

    def predict_proba(self, probabilities: ArrayLike) -> NDArray[np.float64]:
        """Return the calibrated probabilities (N, K)."""
        return np.asarray(self.calibrator_.predict(_columns(probabilities)), np.float64)


def _columns(probabilities: ArrayLike) -> NDArray[np.float64]:
    p = np.asarray(probabilities, np.float64)
    if p.ndim == 1 or p.shape[1] == 1:
        return np.column_stack([1 - p.ravel(), p.ravel()])
    # Sums of float32 are 1 up to 1e-7 for each class.
    return p / p.sum(axis=1, keepdims=True)


#: The names of CalArena's tables and files of results.
CUSTOM_CALIBRATORS = {
    "Recalib-auto": partial(RecalibCalibrator, "auto"),
    "Recalib-auto-keep": partial(RecalibCalibrator, "auto", preserve_accuracy=True),
    "Recalib-vector": partial(RecalibCalibrator, "vector"),
    "Recalib-beta": partial(RecalibCalibrator, "beta"),
    "Recalib-spline": partial(RecalibCalibrator, "spline"),
    "Recalib-structured-matrix": partial(RecalibCalibrator, "structured_matrix"),
}
