"""Calibration by the Open Inference Protocol V2: each model's calibrator is a V2 model."""
