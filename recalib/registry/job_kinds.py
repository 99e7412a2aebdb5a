"""Kinds of jobs: servers enqueue them, and workers run them (`training.main`)."""

from __future__ import annotations

__all__ = ["FIT", "MONITOR", "REFIT", "TRAIN"]

FIT = "fit"
MONITOR = "monitor"
REFIT = "refit"
TRAIN = "train"
