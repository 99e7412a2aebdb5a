"""A worker process with small parts: `python -m tests.training.batch_worker DATABASE BLOBS`."""

from __future__ import annotations

import sys
import threading

from recalib.registry import Registry
from training import batch_job
from training.main import HANDLERS
from training.worker import Worker

__all__ = ["use_small_parts"]

#: Short enough to wait for, long enough for a busy machine to send a heartbeat in a third of it.
_LEASE_SECONDS = 1.5


def use_small_parts() -> None:
    """Make parts of 100 rows of 50 classes in float32."""
    batch_job._CHUNK_BYTES = batch_job._PART_BYTES = 20_000


def main() -> None:
    """Run jobs until the process is killed."""
    use_small_parts()
    registry = Registry(*sys.argv[1:])
    worker = Worker(registry, HANDLERS, name="process", lease_seconds=_LEASE_SECONDS)
    worker.run(threading.Event())


if __name__ == "__main__":
    main()
