"""Periodic tasks for prediction ids and labels, in every server process."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from recalib.errors import RecalibError
from recalib.registry import Registry
from recalib.registry.purge import purge as purge_deleted
from recalib.settings import Settings
from service.idempotency import ANSWERS_SECONDS
from service.single_flight import SingleFlight
from service.state import State

log = logging.getLogger(__name__)

#: Maximum delay until all processes use a new signing key.
_LOOK_SECONDS = 5.0
#: The age of an id decides whether it is expired, so the time of the deletion does not matter.
_PURGE_SECONDS = 3600.0
#: A registry that hangs must not delay the end of the process.
_LAST_SECONDS = 2.0


async def run_housekeeping(state: State) -> None:
    """Refresh the signing key and delete expired rows, for as long as the process runs."""
    single_flight: SingleFlight[int] = SingleFlight(1)
    act = partial(purge, state.registry, state.settings)
    purge_at = 0.0
    while True:
        # Sleep first: the first request that needs a key fetches it.
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await _wait(state.ids.submit_refresh())
            if time.monotonic() >= purge_at:
                await _wait(single_flight.submit("purge", act))
                purge_at = time.monotonic() + _PURGE_SECONDS
        except Exception:  # of any kind: the next refresh must still run
            log.exception("Housekeeping failed; it is retried.", extra={"action": "upkeep_failed"})


async def _wait(flight: Future[Any]) -> None:
    """Wait for the call. If cancelled, wait a little longer: it can close its connection."""
    waiting = asyncio.wrap_future(flight)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting], timeout=_LAST_SECONDS)
        raise


def purge(registry: Registry, settings: Settings) -> int:
    """Verify the database, and remove what has expired; return the number of labels.

    These are labels whose ids have expired, keys that sign no valid id, stored responses, sessions,
    entries of the audit trail, events, and the content of what was deleted. Several processes may
    do this concurrently.
    """
    removed, lifetime_seconds = 0, settings.label_lifetime_seconds
    try:
        registry.verify()
        while True:
            with registry.transaction() as tx:
                step = tx.labels.purge(lifetime_seconds)
            removed += step
            if step == 0:
                break
        with registry.transaction() as tx:
            tx.signing_keys.purge(lifetime_seconds)
            tx.adaptations.purge(lifetime_seconds)
            tx.idempotency.purge(ANSWERS_SECONDS)
            tx.audit.purge(settings.audit_seconds)
            tx.events.purge(settings.events_seconds)
            tx.webhooks.purge()
            tx.sessions.purge()
        purge_deleted(registry, settings.deleted_seconds)
    except RecalibError as error:  # retried at the next iteration
        log.warning("Expired labels are removed later: %s", error, extra={"action": "purge_failed"})
    return removed
