"""Kinds of jobs that the server enqueues and workers do (`training.main`)."""

from __future__ import annotations

__all__ = ["FIT", "MONITOR", "REFIT", "TRAIN"]

FIT = "fit"
MONITOR = "monitor"
REFIT = "refit"
TRAIN = "train"
