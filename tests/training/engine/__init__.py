"""Tests of the training engine."""
