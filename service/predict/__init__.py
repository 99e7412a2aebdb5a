"""The hot path: logits in, calibrated probabilities out."""
