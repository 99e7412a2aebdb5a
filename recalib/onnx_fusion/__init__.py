"""Fuse a calibrator into an ONNX classifier: one file that returns probabilities.

>>> recalib.fuse("classifier.onnx", recalib.load("t.calib"), "calibrated.onnx")  # doctest: +SKIP

The model is the user's own file on the user's own machine. Nothing here is for a service: a
foreign graph can take all memory, hang its loader or name any file.
"""
