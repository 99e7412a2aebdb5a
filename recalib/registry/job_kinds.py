"""Kinds of jobs: servers enqueue them, and workers run them (`training.main`)."""

from __future__ import annotations

__all__ = ["EVALUATE", "FIT", "MONITOR", "PUBLISH", "REFIT", "TRAIN"]

EVALUATE = "evaluate"
FIT = "fit"
MONITOR = "monitor"
PUBLISH = "publish"
REFIT = "refit"
TRAIN = "train"
