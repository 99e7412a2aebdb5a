"""Kinds of jobs: servers enqueue them, and workers run them (`training.main`)."""

from __future__ import annotations

__all__ = ["FIT", "MONITOR", "PUBLISH", "REFIT", "TRAIN"]

FIT = "fit"
MONITOR = "monitor"
PUBLISH = "publish"
REFIT = "refit"
TRAIN = "train"
