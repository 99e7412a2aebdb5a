"""Validation logits, uploaded."""
