"""Kinds of jobs: servers enqueue them, and workers run them (`training.main`)."""

from __future__ import annotations

BATCH = "batch"
EVALUATE = "evaluate"
FIT = "fit"
MONITOR = "monitor"
PUBLISH = "publish"
REFIT = "refit"
REPLAY = "replay"
TRAIN = "train"


def monitor_key(shard: int, shards: int) -> str:
    """Return the unique key of the monitoring job of a shard, a part of the models."""
    return MONITOR if shards == 1 else f"{MONITOR} {shard}/{shards}"
