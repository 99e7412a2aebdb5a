"""The thread that extends the lease of a job while its handler runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recalib.errors import FencedError, UnavailableError
from training.job_context import JobContext

_log = logging.getLogger(__name__)
#: Beats per lease: two may fail before it expires.
_BEATS_PER_LEASE = 3


@contextmanager
def heartbeat(context: JobContext, lease_seconds: float) -> Iterator[None]:
    """Extend the lease while the block runs; `check_cancelled` reports a lost lease."""
    finished = threading.Event()
    thread = threading.Thread(
        target=_beat,
        args=(context, lease_seconds, finished),
        name=f"heartbeat-{context.lease.job.id}",
        daemon=True,  # must not keep a failing worker from exiting
    )
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _beat(context: JobContext, lease_seconds: float, finished: threading.Event) -> None:
    fields = {"job_id": context.lease.job.id}
    is_unavailable = False
    while not finished.wait(lease_seconds / _BEATS_PER_LEASE):
        try:
            context.beat(lease_seconds)
            is_unavailable = False
        except FencedError:
            _log.warning(
                "Lost the lease to another worker.", extra={"action": "lease_lost", **fields}
            )
            return
        except UnavailableError as error:
            # Continue: the database may return before the lease expires. If it does not, the fence
            # keeps two workers from publishing.
            if not is_unavailable:
                _log.warning(
                    "Cannot extend the lease: %s",
                    error,
                    extra={"action": "heartbeat_failed", **fields},
                )
            is_unavailable = True
        except Exception:
            # Continue: without a heartbeat this worker would look dead.
            _log.exception("A heartbeat failed.", extra={"action": "heartbeat_failed", **fields})
