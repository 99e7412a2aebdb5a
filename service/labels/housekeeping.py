"""What has to be done about ids and labels now and then, in every server process."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from recalib.errors import RecalibError
from recalib.registry import Registry
from service.idempotency import ANSWERS_SECONDS
from service.predict.single_flight import SingleFlight
from service.state import State

__all__ = ["purge", "run_housekeeping"]

log = logging.getLogger(__name__)

#: How soon a new signing key is used everywhere.
_LOOK_SECONDS = 5.0
#: Expired rows are refused by their ids' age; when they go is of no consequence.
_PURGE_SECONDS = 3600.0
#: A registry that hangs must not keep the process from ending.
_LAST_SECONDS = 2.0


async def run_housekeeping(state: State) -> None:
    """Follow the signing key, and remove what has expired, for as long as the process runs."""
    single_flight: SingleFlight[int] = SingleFlight(1)
    lifetime, audit = state.settings.label_lifetime_seconds, state.settings.audit_seconds
    act = partial(purge, state.registry, lifetime, audit)
    purge_at = 0.0
    while True:
        # First of all: the first request that needs a key fetches it, and short lives need none.
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await _ended(state.ids.refreshing())
            if time.monotonic() >= purge_at:
                await _ended(single_flight.submit("purge", act))
                purge_at = time.monotonic() + _PURGE_SECONDS
        except Exception:  # whatever it was, a new key must not be missed
            log.exception("No upkeep this time.", extra={"action": "upkeep_failed"})


async def _ended(flight: Future[Any]) -> None:
    """Wait for it; when told to stop, a little longer, so that its connection can be closed."""
    waiting = asyncio.wrap_future(flight)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting], timeout=_LAST_SECONDS)
        raise


def purge(registry: Registry, lifetime_seconds: float, audit_seconds: float) -> int:
    """Remove labels whose ids have expired, keys that no id can be signed with any more, answers
    that nobody will ask for again, and what the audit trail is no longer to have.

    Return how many labels. Several processes may do so at once.
    """
    removed = 0
    try:
        while True:
            with registry.transaction() as tx:
                step = tx.labels.purge(lifetime_seconds)
            removed += step
            if step == 0:
                break
        with registry.transaction() as tx:
            tx.signing_keys.purge(lifetime_seconds)
            tx.idempotency.purge(ANSWERS_SECONDS)
            tx.audit.purge(audit_seconds)
    except RecalibError as error:  # the next time will do
        log.warning("Old labels stay for now: %s", error, extra={"action": "purge_failed"})
    return removed
