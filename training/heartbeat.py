"""The thread that keeps a job's lease alive while its handler works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recalib.errors import FencedError, UnavailableError
from training.job_context import JobContext

__all__ = ["heartbeat"]

_log = logging.getLogger(__name__)
#: Beats a lease: two may go missing before it runs out.
_BEATS = 3


@contextmanager
def heartbeat(context: JobContext, lease_seconds: float) -> Iterator[None]:
    """Beat for the job while the block runs; the handler hears about trouble when it asks."""
    over = threading.Event()
    thread = threading.Thread(
        target=_beat,
        args=(context, lease_seconds, over),
        name=f"heartbeat-{context.lease.job.id}",
        daemon=True,  # a worker that falls over must not be kept from exiting
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _beat(context: JobContext, lease_seconds: float, over: threading.Event) -> None:
    fields = {"job_id": context.lease.job.id}
    away = False
    while not over.wait(lease_seconds / _BEATS):
        try:
            context.beat(lease_seconds)
            away = False
        except FencedError:
            _log.warning(
                "Lost the lease to another worker.", extra={"action": "lease_lost", **fields}
            )
            return
        except UnavailableError as error:
            # Going on: the database may be back before the lease runs out, and if it is not, the
            # fence still keeps two workers from publishing.
            if not away:
                _log.warning(
                    "Cannot extend the lease: %s",
                    error,
                    extra={"action": "heartbeat_failed", **fields},
                )
            away = True
        except Exception:
            # A dead heartbeat would look like a dead worker; an attempt a beat is all it costs.
            _log.exception("A heartbeat failed.", extra={"action": "heartbeat_failed", **fields})
