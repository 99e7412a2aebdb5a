"""Prediction ids of served rows; labels refer to them later."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from concurrent.futures import Future
from typing import NamedTuple, cast

import numpy as np

from recalib.core.arrays import Floats
from recalib.core.prediction_ids import (
    BatchSummary,
    SigningKey,
    summarise_drawn_labels,
    summarise_predictions,
)
from recalib.core.prediction_ids import mint as mint_ids
from recalib.errors import InputError, UnavailableError
from recalib.registry import Registry
from service.serving.loaded_calibrators import LoadedCalibrator
from service.single_flight import SingleFlight

log = logging.getLogger(__name__)

#: Time after a failure during which requests do not wait for a key.
_RETRY_SECONDS = 5.0
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,4})?")


def parse_share(text: str) -> float:
    """Return the share of rows that get ids, in [0, 1], from the query parameter `ids`."""
    if _NUMBER.fullmatch(text) is not None and 0 <= float(text) <= 1:
        return float(text)
    raise InputError("ids", found=repr(text[:40]), accepted="0, 1 or a share of rows between them")


class Origin(NamedTuple):
    """Where the rows of a request come from."""

    #: Numbers of their segment in the settings of the model and of their group, 0 for none.
    segment: int = 0
    group: int = 0
    #: The segment that the version has offsets for; "" for none.
    offsets: str = ""


NOWHERE = Origin()


class PredictionIds:
    """Creates ids with the newest known signing key; safe to use from threads.

    The registry creates the first key. A background task calls `submit_refresh` to find newer
    keys of other processes.

    Parameters
    ----------
    patience_seconds: how long a request waits for the first key; later it goes on without ids.
    """

    def __init__(self, registry: Registry, patience_seconds: float) -> None:
        self._registry = registry
        self._patience_seconds = patience_seconds
        self._key: SigningKey | None = None
        self._retry_at = 0.0
        self._random = np.random.default_rng()
        self._single_flight: SingleFlight[None] = SingleFlight(1)

    def submit_refresh(self) -> Future[None]:
        """Read the newest key on another thread; the future is done when it has been read."""
        return self._single_flight.submit("key", self._refresh)

    @property
    def has_key(self) -> bool:
        """Whether ids can be created now."""
        return self._key is not None

    async def ready(self) -> None:
        """Wait for a key, for at most `patience_seconds`; return at once after a recent failure."""
        if self._key is not None or time.monotonic() < self._retry_at:
            return
        try:
            await asyncio.wait_for(
                asyncio.wrap_future(self.submit_refresh()), self._patience_seconds
            )
        except TimeoutError:
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def wait(self, seconds: float) -> None:
        """Wait until no key is being read, so that the registry can be closed."""
        self._single_flight.wait(seconds)

    def mint(
        self,
        loaded: LoadedCalibrator,
        logits: Floats,
        probabilities: Floats,
        share: float,
        origin: Origin = NOWHERE,
        adaptation: int | None = None,
    ) -> list[str | None]:
        """Return an id or None for each row; sample logits of rows with ids for monitoring.

        Rows of a model without a champion get none: no version answers for them.
        A row of a multilabel model is counted with its id, as a prediction of one label, which is
        drawn uniformly: before the labels of the row are known, and independently of them.

        Parameters
        ----------
        logits: the classifier's, checked, (N, K).
        probabilities: of the response, (N, K).
        adaptation: number of the state that adapted them to label shift.
        share: of rows that get an id, in [0, 1]. Rows are drawn at random, so that the labelled
            rows are an unbiased sample.
        """
        rows = len(probabilities)
        key, ids = self._key, cast("list[str | None]", [None] * rows)
        if key is None or share <= 0 or loaded.is_uncalibrated:
            return ids
        of_version = key, loaded.number, loaded.version, time.time()
        of_rows = origin.segment, origin.group, adaptation or 0
        if share >= 1:
            summaries = self._summarise(loaded, logits, probabilities, origin.segment)
            ids = cast("list[str | None]", mint_ids(*of_version, summaries, *of_rows))
            loaded.stream.keep(ids, logits)
            return ids
        chosen = np.flatnonzero(np.frombuffer(os.urandom(4 * rows), "<u4") < share * 2.0**32)
        summaries = self._summarise(loaded, logits[chosen], probabilities[chosen], origin.segment)
        minted = mint_ids(*of_version, summaries, *of_rows)
        for row, id in zip(chosen.tolist(), minted, strict=True):
            ids[row] = id
        loaded.stream.keep(ids, logits)
        return ids

    def _summarise(
        self, loaded: LoadedCalibrator, logits: Floats, probabilities: Floats, segment: int
    ) -> BatchSummary:
        if not loaded.calibrator.is_multilabel:
            return summarise_predictions(logits, probabilities)
        drawn = self._random.integers(probabilities.shape[1], size=len(probabilities))
        summaries = summarise_drawn_labels(logits, probabilities, drawn)
        loaded.stream.add_drawn(drawn, summaries.confidences, segment)
        return summaries

    def _refresh(self) -> None:
        """Read the newest key; a failure is not raised, since serving works without ids."""
        try:
            with self._registry.reading() as tx:
                key = tx.signing_keys.newest()
            if key is None:
                with self._registry.transaction() as tx:
                    key = tx.signing_keys.first()
            self._key = key
        except UnavailableError as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            if self._key is None:
                log.warning("No prediction ids: %s", error, extra={"action": "no_signing_key"})
