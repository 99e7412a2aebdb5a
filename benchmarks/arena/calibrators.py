"""The methods: functions from calibration rows and test rows to test probabilities.

Peers are set up as in CalArena's `run_benchmark.py`; they take float32 probabilities, and P(y = 1)
alone for two classes. Ours take the same numbers as log-probabilities.

Legend: N calibration rows, M test rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
#: Takes log-probabilities (N, K), labels (N,) and log-probabilities (M, K); returns (M, K).
Method = Callable[[Rows, NDArray[np.int64], Rows], Rows]

BASE = "base model"

#: Our maps by the name in the table, with options.
OURS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", {}),
    "auto, keep": ("auto", {"preserve_accuracy": True}),
    BASE: ("identity", {}),
    "isotonic, centred": ("isotonic", {"centred": True}),
    **{
        name: (name, {})
        for name in (
            "temperature",
            "ensemble_temperature",
            "vector",
            "beta",
            "quadratic",
            "structured_vector",
            "structured_matrix",
            "spline",
            "dirichlet",
            "isotonic",
            "venn_abers",
        )
    },
}

#: Names in `probmetrics.calibrators` with options, for two classes and for several.
_BINARY: Mapping[str, tuple[str, dict[str, Any]]] = {
    "TS": ("TemperatureScalingCalibrator", {}),
    "ETS": ("ETSCalibrator", {}),
    "VS": ("VectorScalingCalibrator", {}),
    "SVS": ("SVSCalibrator", {}),
    "SMS": ("SMSCalibrator", {}),
    "Affine": ("BinaryLogisticCalibrator", {"type": "affine"}),
    "Quadratic": ("BinaryLogisticCalibrator", {"type": "quadratic"}),
    "Spline": ("MLISplineCalibrator", {}),
    "Venn-Abers": ("BinaryVennAbersCalibrator", {}),
    "CIR": ("CenteredIsotonicRegressionCalibrator", {}),
    "betacal": ("BetacalCalibrator", {}),
    "sklearn sigmoid": ("SklearnCalibrator", {"method": "sigmoid"}),
    "sklearn isotonic": ("SklearnCalibrator", {"method": "isotonic"}),
}
_ONE_VS_REST = {"CIR"}
# Spline is left out for several classes: it takes minutes for 26.
_SEVERAL = {
    name: _BINARY[name] for name in ("TS", "ETS", "VS", "SVS", "SMS", "CIR", "sklearn sigmoid")
} | {
    "Venn-Abers": ("VennAbersCalibrator", {}),
    "sklearn isotonic": _BINARY["sklearn isotonic"],
}

PEERS = tuple(_BINARY)


def method(name: str, classes: int) -> Method | None:
    """Return a method, or None if it has no form for this number of classes."""
    if name in OURS:
        return _ours(*OURS[name])
    peers = _BINARY if classes == 2 else _SEVERAL
    return _peer(*peers[name], one_vs_rest=name in _ONE_VS_REST) if name in peers else None


def _ours(map: str, options: Mapping[str, Any]) -> Method:
    def predict(z_cal: Rows, y_cal: NDArray[np.int64], z_test: Rows) -> Rows:
        import recalib

        calibrator = recalib.fit(z_cal, y_cal, map, input="logits", **options)
        return calibrator.predict_float64(z_test)

    return predict


def _peer(name: str, options: Mapping[str, Any], *, one_vs_rest: bool) -> Method:
    def predict(z_cal: Rows, y_cal: NDArray[np.int64], z_test: Rows) -> Rows:
        from probmetrics import calibrators

        calibrator = getattr(calibrators, name)(**options)
        if z_cal.shape[1] > 2 and one_vs_rest:
            calibrator = calibrators.MulticlassOneVsRestCalibrator(calibrator)
        # These take both columns only.
        both = z_cal.shape[1] > 2 or name in _TWO_COLUMNS
        cal, test = (_protocol(z, both) for z in (z_cal, z_test))
        calibrator.fit(cal, y_cal)
        return _both_columns(np.asarray(calibrator.predict_proba(test), np.float64))

    return predict


_TWO_COLUMNS = {"VectorScalingCalibrator", "SVSCalibrator", "SMSCalibrator"}


def _protocol(z: Rows, both: bool) -> NDArray[np.float32]:
    p = np.exp(z).astype(np.float32)
    return p if both else p[:, 1]


def _both_columns(p: Rows) -> Rows:
    return p if p.ndim == 2 and p.shape[1] > 1 else np.column_stack([1 - p.ravel(), p.ravel()])
