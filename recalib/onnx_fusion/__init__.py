"""Fuse a calibrator into an ONNX classifier: one file that returns probabilities.

>>> recalib.fuse("classifier.onnx", recalib.load("t.calib"), "calibrated.onnx")  # doctest: +SKIP

For trusted models only; do not use it in a service. An untrusted graph can exhaust memory, block
its loader or refer to any file.
"""
