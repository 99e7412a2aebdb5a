"""A worker process for tests: `python -m tests.training.worker_process DATABASE BLOBS`.

Its jobs wait for files, so that a test controls when a handler continues.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
from pathlib import Path

from recalib.registry import Registry
from training.worker import JobContext, Worker, stop_on_signals, watch_parent

#: How often a handler looks for its file, in seconds.
_TICK = 0.01


def publish(context: JobContext) -> None:
    """Record the start, wait for the file `go`, and publish; stop on cancellation."""
    _note(context)
    while not _may_go(context):
        context.check_cancelled()
        time.sleep(_TICK)
    _publish(context)


def publish_deaf(context: JobContext) -> None:
    """Like `publish`, but never check for cancellation."""
    _note(context)
    while not _may_go(context):
        time.sleep(_TICK)
    _publish(context)


def die(context: JobContext) -> None:
    """Record the start, and kill the process."""
    _note(context)
    os.kill(os.getpid(), signal.SIGKILL)


HANDLERS = {"publish": publish, "publish_deaf": publish_deaf, "die": die}


def _note(context: JobContext) -> None:
    # One write of one short line: lines of several processes do not mix.
    with Path(context.payload["began"]).open("a") as file:
        file.write(f"{context.lease.job.id} {os.getpid()}\n")


def _may_go(context: JobContext) -> bool:
    go = context.payload.get("go")
    return go is None or Path(go).exists()


def _publish(context: JobContext) -> None:
    with context.registry.reading() as tx:
        model = tx.models.get(context.payload["model"])
    context.publish(
        model,
        dataset_name="validation",
        card={"job": context.lease.job.id},
        parameters=b"numbers",
        promote_alias="champion",
        reason="test",
    )


def main() -> None:
    """Run the worker until a stop signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("database_url")
    parser.add_argument("blob_url")
    parser.add_argument("--lease-seconds", type=float, default=30.0)
    parser.add_argument("--embedded", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(action)s %(message)s")

    stop = threading.Event()
    stop_on_signals(stop, embedded=arguments.embedded)
    if arguments.embedded:
        watch_parent(stop)
    registry = Registry(arguments.database_url, arguments.blob_url)
    worker = Worker(
        registry,
        HANDLERS,
        name=str(os.getpid()),
        lease_seconds=arguments.lease_seconds,
        poll_seconds=0.02,
        retry_seconds=0.02,
    )
    worker.run(stop)
    registry.close()


if __name__ == "__main__":
    main()
