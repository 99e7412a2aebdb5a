"""The reference: probabilities of a calibrator by NumPy in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.ops import NumpyOps

if TYPE_CHECKING:
    from recalib.calibrator.calibrator import Calibrator

_REFERENCE = NumpyOps()

#: Elements that NumPy computes at a time: a map makes several arrays, which stay in the processor's
#: cache.
_CHUNK = 65_536


def predict_by_numpy(
    calibrator: Calibrator, logits: Floats, dtype: type[np.floating[Any]]
) -> NDArray[Any]:
    """Return the probabilities (N, K) of checked logits, rounded to `dtype`."""
    step = max(1, _CHUNK // logits.shape[1])
    if 0 < len(logits) <= step:
        # In C order whatever the order of the logits: that is what encoders of answers take.
        return _predict_chunk(calibrator, logits).astype(dtype, order="C", copy=False)
    result = np.empty(logits.shape, dtype)
    for start in range(0, len(logits), step):
        rows = slice(start, start + step)
        result[rows] = _predict_chunk(calibrator, logits[rows])
    return result


def _predict_chunk(calibrator: Calibrator, logits: Floats) -> NDArray[np.float64]:
    masked = calibrator.apply_mask(_REFERENCE, logits.astype(np.float64, copy=False))
    return np.asarray(calibrator.map.probabilities(_REFERENCE, masked, calibrator.parameters))
