"""Ids for the predictions that this process answers with, by which their labels find them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from concurrent.futures import Future
from typing import cast

import numpy as np

from recalib.arrays import Floats
from recalib.errors import InputError, UnavailableError
from recalib.prediction_ids import SigningKey, summarise_predictions
from recalib.prediction_ids import mint as mint_ids
from recalib.registry import Registry
from service.serving.loaded_calibrators import LoadedCalibrator
from service.single_flight import SingleFlight

__all__ = ["PredictionIds", "parse_share"]

log = logging.getLogger(__name__)

#: After a failure, requests do without a key for so long.
_AGAIN_SECONDS = 5.0
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,4})?")


def parse_share(text: str) -> float:
    """Return the share of a request's rows that get ids, in [0, 1], from what its query says."""
    if _NUMBER.fullmatch(text) is not None and 0 <= float(text) <= 1:
        return float(text)
    raise InputError("ids", found=repr(text[:40]), accepted="0, 1 or a share of rows between them")


class PredictionIds:
    """Makes ids, with the newest key that this process has seen; safe to use from threads.

    The registry makes the first key. One that another process made in place of it is noticed by
    `refreshing`, which something has to call now and then.

    Parameters
    ----------
    patience_seconds: how long a request waits for the first key, and then does without.
    """

    def __init__(self, registry: Registry, patience_seconds: float) -> None:
        self._registry = registry
        self._patience_seconds = patience_seconds
        self._key: SigningKey | None = None
        self._again_at = 0.0
        self._single_flight: SingleFlight[None] = SingleFlight(1)

    def refreshing(self) -> Future[None]:
        """Return what is done when the newest key has been looked for, on another thread."""
        return self._single_flight.submit("key", self._refresh)

    @property
    def has_key(self) -> bool:
        """Whether ids can be made now."""
        return self._key is not None

    async def ready(self) -> None:
        """Wait until there is a key, where the registry can be asked for one."""
        if self._key is not None or time.monotonic() < self._again_at:
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(self.refreshing()), self._patience_seconds)
        except TimeoutError:
            self._again_at = time.monotonic() + _AGAIN_SECONDS

    def wait(self, seconds: float) -> None:
        """Wait until no key is being looked for, so that the registry can be closed."""
        self._single_flight.wait(seconds)

    def mint(
        self,
        loaded: LoadedCalibrator,
        logits: Floats,
        probabilities: Floats,
        share: float,
        segment: int = 0,
    ) -> list[str | None]:
        """Return an id for each row, or None for those that get none; keep logits that are wanted.

        Parameters
        ----------
        logits: the classifier's, checked, (N, K).
        probabilities: what is answered, (N, K).
        share: of the rows that get one, in [0, 1]; which is left to chance, so that labels of
            some are as good as labels of all.
        segment: the number of the model's segment that the rows are of.
        """
        rows = len(probabilities)
        key, found = self._key, cast("list[str | None]", [None] * rows)
        if key is None or share <= 0:
            return found
        model, version, now = loaded.number, loaded.version, time.time()
        if share >= 1:
            said = summarise_predictions(logits, probabilities)
            found = cast("list[str | None]", mint_ids(key, model, version, now, said, segment))
            loaded.stream.keep(found, logits)
            return found
        chosen = np.flatnonzero(np.frombuffer(os.urandom(4 * rows), "<u4") < share * 2.0**32)
        said = summarise_predictions(logits[chosen], probabilities[chosen])
        minted = mint_ids(key, model, version, now, said, segment)
        for row, one in zip(chosen.tolist(), minted, strict=True):
            found[row] = one
        loaded.stream.keep(found, logits)
        return found

    def _refresh(self) -> None:
        """Look for the newest key. Serving goes on without one, so that it is no error."""
        try:
            with self._registry.reading() as tx:
                key = tx.signing_keys.newest()
            if key is None:
                with self._registry.transaction() as tx:
                    key = tx.signing_keys.first()
            self._key = key
        except UnavailableError as error:
            self._again_at = time.monotonic() + _AGAIN_SECONDS
            if self._key is None:
                log.warning("No prediction ids: %s", error, extra={"action": "no_signing_key"})
