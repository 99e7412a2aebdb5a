"""Sums over rows, which metrics and monitoring read."""
