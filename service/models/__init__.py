"""Classifiers to be calibrated."""
