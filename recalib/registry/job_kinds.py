"""Kinds of jobs: servers enqueue them, and workers run them (`training.main`)."""

from __future__ import annotations

__all__ = ["BATCH", "EVALUATE", "FIT", "MONITOR", "PUBLISH", "REFIT", "TRAIN"]

BATCH = "batch"
EVALUATE = "evaluate"
FIT = "fit"
MONITOR = "monitor"
PUBLISH = "publish"
REFIT = "refit"
TRAIN = "train"
