"""Schedule the monitoring job: enqueue the next one after the last one has ended."""

from __future__ import annotations

import asyncio
import logging

from recalib.errors import RecalibError
from recalib.registry import Registry
from recalib.registry.job_kinds import MONITOR
from service.single_flight import SingleFlight
from service.state import State

__all__ = ["ask_to_watch", "keep_watching"]

log = logging.getLogger(__name__)

#: Above jobs that users wait for: the job is short, and there is never more than one.
_PRIORITY = 10
#: Finished jobs that stay in the database.
_MAX_FINISHED = 20
#: Maximum delay between the end of a job and the next one.
_LOOK_SECONDS = 5.0


async def keep_watching(state: State) -> None:
    """Enqueue monitoring jobs for as long as the process runs."""
    every = state.settings.monitor_seconds
    single_flight: SingleFlight[bool] = SingleFlight(1)
    while True:
        # Sleep first: a server that has just started has nothing to assess.
        await asyncio.sleep(min(_LOOK_SECONDS, every))
        try:
            flight = single_flight.submit("ask", lambda: ask_to_watch(state.registry, every))
            await asyncio.wrap_future(flight)
        except RecalibError as error:  # retried at the next iteration
            fields = {"action": "monitor_not_asked"}
            log.warning("The monitoring job is enqueued later: %s", error, extra=fields)
        except Exception:
            log.exception(
                "The monitoring job is not enqueued.", extra={"action": "monitor_not_asked"}
            )


def ask_to_watch(registry: Registry, every_seconds: float) -> bool:
    """Enqueue a monitoring job unless one is queued; return whether it was enqueued.

    Several processes may call this at once: the queue accepts one job.
    """
    with registry.reading() as tx:
        if tx.jobs.is_waiting(MONITOR):
            return False
    with registry.transaction() as tx:
        tx.jobs.enqueue(
            MONITOR, {}, unique=MONITOR, priority=_PRIORITY, run_after_seconds=every_seconds
        )
        tx.jobs.prune(MONITOR, _MAX_FINISHED)
    return True
