"""Fitted calibrators: parameters, a card, and predictions by NumPy or ONNX Runtime."""

from recalib.calibrator.calibrator import Calibrator

__all__ = ["Calibrator"]
