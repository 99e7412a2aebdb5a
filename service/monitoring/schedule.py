"""Schedule the monitoring jobs: enqueue the next one after the last one has ended."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from recalib.errors import RecalibError
from recalib.registry import Registry
from recalib.registry.job_kinds import MONITOR, monitor_key
from service.single_flight import SingleFlight
from service.state import State

log = logging.getLogger(__name__)

#: Above jobs that users wait for: the job is short, and there is never more than one of a shard.
_PRIORITY = 10
#: Finished jobs of each shard that stay in the database.
_MAX_FINISHED = 20
#: Maximum delay between the end of a job and the next one.
_LOOK_SECONDS = 5.0


async def keep_watching(state: State) -> None:
    """Enqueue monitoring jobs for as long as the process runs."""
    seconds, shards = state.settings.monitor_seconds, state.settings.monitor_shards
    single_flight: SingleFlight[bool] = SingleFlight(1)
    while True:
        # Sleep first: a server that has just started has nothing to assess.
        await asyncio.sleep(min(_LOOK_SECONDS, seconds))
        try:
            ask = partial(ask_to_watch, state.registry, seconds, shards)
            await single_flight.run("ask", ask)
        except RecalibError as error:  # retried at the next iteration
            fields = {"action": "monitor_not_asked"}
            log.warning("The monitoring job is enqueued later: %s", error, extra=fields)
        except Exception:
            log.exception(
                "The monitoring job is not enqueued.", extra={"action": "monitor_not_asked"}
            )


def ask_to_watch(registry: Registry, every_seconds: float, shards: int = 1) -> bool:
    """Enqueue the monitoring jobs of all shards, unless queued; return whether one was enqueued.

    Several processes may call this at once: the queue accepts one job of a shard.
    """
    with registry.reading() as tx:
        missing = [
            shard for shard in range(shards) if not tx.jobs.is_waiting(monitor_key(shard, shards))
        ]
    for shard in missing:
        with registry.transaction() as tx:
            tx.jobs.enqueue(
                MONITOR,
                {"shard": shard, "shards": shards},
                unique=monitor_key(shard, shards),
                priority=_PRIORITY,
                run_after_seconds=every_seconds,
            )
            tx.jobs.prune(MONITOR, _MAX_FINISHED * shards)
    return bool(missing)
