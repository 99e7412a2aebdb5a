"""Writing down what a server process has counted, every few seconds and once more at its end.

A process that is killed takes along what it has counted since: one interval of traffic, and no
label. Counts that the registry may or may not have got, because the connection broke in the middle
of a commit, are sent again: an interval of traffic may then be counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from recalib.errors import RecalibError
from recalib.registry import Registry
from service.monitoring.logit_sampling import write_captures
from service.monitoring.traffic import Traffic
from service.predict.single_flight import SingleFlight
from service.state import State

__all__ = ["flush", "keep_flushing"]

log = logging.getLogger(__name__)

#: How long the last flush may take.
_LAST_SECONDS = 2.0
_single_flight: SingleFlight[None] = SingleFlight(1)


async def keep_flushing(state: State) -> None:
    """Write down what is counted, for as long as the process runs, and at its end."""
    try:
        while True:
            await asyncio.sleep(state.settings.flush_seconds)
            await _flushed(state, state.settings.capture_seconds)
    except asyncio.CancelledError:
        # All requests have ended. A registry that hangs must not keep the process from ending.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_flushed(state, 0.0), _LAST_SECONDS)
        raise


async def _flushed(state: State, older_than_seconds: float) -> None:
    traffic = state.calibrators.traffic

    def act() -> None:
        flush(state.registry, traffic)
        try:
            write_captures(state.registry, traffic.captures, older_than_seconds)
        except RecalibError as error:
            fields = {"action": "captures_not_written"}
            log.warning("Kept logits are written later: %s", error, extra=fields)

    try:
        # On a thread that may be left behind.
        await asyncio.wrap_future(_single_flight.submit(traffic, act))
    except Exception:  # whatever it was, the next counts must not be lost
        log.exception("Traffic not written down.", extra={"action": "flush_failed"})


def flush(registry: Registry, traffic: Traffic) -> bool:
    """Write down what is counted, and follow what its models declare; return whether it worked."""
    counted = traffic.take()
    if not counted:
        return True
    try:
        with registry.transaction() as tx:
            tx.traffic.add(counted)
    except RecalibError as error:
        log.warning("Traffic is written down later: %s", error, extra={"action": "flush_failed"})
        lost = traffic.give_back(counted)
        if lost:
            log.error("%d predictions not counted.", lost, extra={"action": "traffic_lost"})
        return False
    except BaseException:
        traffic.give_back(counted)
        raise
    try:
        with registry.reading() as tx:
            traffic.declare(tx.models.monitoring({one.model_id for one in counted}))
    except RecalibError:  # what was declared before goes on
        return False
    return True
