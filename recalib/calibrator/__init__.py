"""Fitted calibrators: parameters, a card, and predictions by NumPy or ONNX Runtime."""

from recalib.calibrator.calibrator import Calibrator
from recalib.calibrator.identity import identity_calibrator

__all__ = ["Calibrator", "identity_calibrator"]
