"""Has what a calibrator sees, or how right it is, changed? With labels and without."""

from recalib.drift.bettors import BETTORS, Bettor
from recalib.drift.calibration_test import CalibrationTest
from recalib.drift.confidence_shift import ConfidenceShift, confidence_shift, quantile_edges
from recalib.drift.label_shift import estimated_priors

__all__ = [
    "BETTORS",
    "Bettor",
    "CalibrationTest",
    "ConfidenceShift",
    "confidence_shift",
    "estimated_priors",
    "quantile_edges",
]
