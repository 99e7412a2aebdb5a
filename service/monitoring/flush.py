"""Write the traffic counts of a server process to the registry, periodically and at shutdown.

A process that is killed loses the counts of at most one interval, and no label. If the connection
breaks during a commit, the counts are sent again: one interval may then be counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from recalib.errors import RecalibError
from recalib.registry import Registry
from service.serving.logit_sampling import write_captures
from service.serving.traffic import Traffic
from service.single_flight import SingleFlight
from service.state import State

log = logging.getLogger(__name__)

#: How long the last flush may take.
_LAST_SECONDS = 2.0
_single_flight: SingleFlight[None] = SingleFlight(1)


async def keep_flushing(state: State) -> None:
    """Flush counts for as long as the process runs, and at its end."""
    try:
        while True:
            await asyncio.sleep(state.settings.flush_seconds)
            await _flush_in_thread(state, state.settings.capture_seconds, "interval")
    except asyncio.CancelledError:
        # All requests have ended. A registry that hangs must not delay the end of the process.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_flush_in_thread(state, 0.0, "end"), _LAST_SECONDS)
        raise


async def _flush_in_thread(state: State, older_than_seconds: float, occasion: str) -> None:
    """Flush after the flush in progress, which lacks the latest counts."""
    traffic = state.calibrators.traffic

    def act() -> None:
        flush(state.registry, traffic)
        try:
            write_captures(state.registry, traffic.captures, older_than_seconds)
        except RecalibError as error:
            fields = {"action": "captures_not_written"}
            log.warning("Captured logits are written later: %s", error, extra=fields)

    try:
        # A thread that hangs does not delay the end of the process.
        await _single_flight.run((traffic, occasion), act)
    except Exception:  # of any kind: the next flush must still run
        log.exception("Traffic counts are not written.", extra={"action": "flush_failed"})


def flush(registry: Registry, traffic: Traffic) -> bool:
    """Write counts and update the models' monitoring settings; return whether it succeeded."""
    counts = traffic.take()
    if not counts.traffic and not counts.spreads:
        return True
    try:
        with registry.transaction() as tx:
            tx.traffic.add(counts.traffic)
            tx.class_traffic.add(counts.classes)
            tx.logit_scales.add_traffic(counts.spreads)
    except RecalibError as error:
        log.warning("Traffic counts are written later: %s", error, extra={"action": "flush_failed"})
        lost_rows = traffic.give_back(counts)
        if lost_rows:
            log.error(
                "%d predictions are lost from the traffic counts.",
                lost_rows,
                extra={"action": "traffic_lost"},
            )
        return False
    except BaseException:
        traffic.give_back(counts)
        raise
    try:
        with registry.reading() as tx:
            traffic.declare(tx.models.monitoring({count.model_id for count in counts.traffic}))
    except RecalibError:  # the earlier settings stay in use
        return False
    return True
