"""Seeing to it that a worker watches: a job that is there again once the last one has ended."""

from __future__ import annotations

import asyncio
import logging

from recalib.errors import RecalibError
from recalib.registry import Registry
from service.predict.single_flight import SingleFlight
from service.state import State

__all__ = ["MONITOR", "ask_to_watch", "keep_watching"]

log = logging.getLogger(__name__)

#: The kind of job; `training.monitoring_job` does it.
MONITOR = "monitor"
#: Before those that people wait for: it takes little, and there is never more than one.
_PRIORITY = 10
#: Those that have ended are kept for whoever wonders what they found, and no longer.
_KEPT = 20
#: How soon a job that has ended is followed by the next, at most.
_LOOK_SECONDS = 5.0


async def keep_watching(state: State) -> None:
    """Ask for the next look once the last one has ended, for as long as the process runs."""
    every = state.settings.monitor_seconds
    single_flight: SingleFlight[bool] = SingleFlight(1)
    while True:
        # First of all: a service that has just started has nothing to look at.
        await asyncio.sleep(min(_LOOK_SECONDS, every))
        try:
            flight = single_flight.submit("ask", lambda: ask_to_watch(state.registry, every))
            await asyncio.wrap_future(flight)
        except RecalibError as error:  # the next time will do
            fields = {"action": "monitor_not_asked"}
            log.warning("Nobody is asked to watch for now: %s", error, extra=fields)
        except Exception:
            log.exception("Nobody is asked to watch.", extra={"action": "monitor_not_asked"})


def ask_to_watch(registry: Registry, every_seconds: float) -> bool:
    """Enqueue a look at everything, unless one waits already; return whether none did.

    Several processes may ask at once: the queue takes one.
    """
    with registry.reading() as tx:
        if tx.jobs.is_waiting(MONITOR):
            return False
    with registry.transaction() as tx:
        tx.jobs.enqueue(
            MONITOR, {}, unique=MONITOR, priority=_PRIORITY, run_after_seconds=every_seconds
        )
        tx.jobs.prune(MONITOR, _KEPT)
    return True
