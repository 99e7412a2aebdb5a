"""Micro-batching: small batches that arrive together are calibrated in one call.

One call of NumPy costs more than a row of ten classes. A batch waits until the event loop has run
the requests that are ready, never for further requests: a lone request is computed alone.
"""

from __future__ import annotations

import asyncio
from asyncio import Future

import numpy as np

from recalib.calibrator.calibrator import SMALL_BATCH
from recalib.core.arrays import Floats
from service.serving.ids import Origin, PredictionIds
from service.serving.loaded_calibrators import LoadedCalibrator

#: Numbers of a batch up to which joining it with others is cheaper than computing it alone.
MAX_NUMBERS = 64

#: Probabilities, float32 (N, K); ids (N,), or None if none were requested; and the number of the
#: state that adapted the probabilities to label shift, or None.
Result = tuple[Floats, list[str | None] | None, int | None]
#: Calibrator, origin and share of ids: batches with the same key can be joined.
_Key = tuple[LoadedCalibrator, Origin, float]
#: The logits of a request, and its future result.
_Part = tuple[Floats, Future[Result]]


def compute(
    ids: PredictionIds, loaded: LoadedCalibrator, origin: Origin, share: float, logits: Floats
) -> Result:
    """Return probabilities and ids of checked logits."""
    state = loaded.adaptation  # read once: another may come meanwhile
    probabilities = loaded.run(logits, origin.segment, state, origin.offsets)
    number = None if state is None else state.number
    if not share:
        return probabilities, None, number
    return probabilities, ids.mint(loaded, logits, probabilities, share, origin, number), number


class MicroBatcher:
    """Joins batches of one event loop."""

    def __init__(self, ids: PredictionIds) -> None:
        self._ids = ids
        self._pending: dict[_Key, list[_Part]] = {}

    def submit(
        self, loaded: LoadedCalibrator, origin: Origin, share: float, logits: Floats
    ) -> Future[Result]:
        """Return the future result of at most `MAX_NUMBERS` checked logits."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._flush)
        future: Future[Result] = loop.create_future()
        self._pending.setdefault((loaded, origin, share), []).append((logits, future))
        return future

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for key, batches in pending.items():
            # Above SMALL_BATCH numbers onnxruntime computes, which is slower for few rows.
            joined: list[_Part] = []
            size = 0
            for batch in batches:
                if joined and size + batch[0].size > SMALL_BATCH:
                    self._compute(key, joined)
                    joined, size = [], 0
                joined.append(batch)
                size += batch[0].size
            self._compute(key, joined)

    def _compute(self, key: _Key, batches: list[_Part]) -> None:
        try:
            joined = [logits for logits, _ in batches]
            logits = joined[0] if len(joined) == 1 else np.concatenate(joined)
            probabilities, ids, number = compute(self._ids, *key, logits)
        except Exception as error:
            for _, future in batches:
                if not future.done():
                    future.set_exception(error)
            return
        start = 0
        for part, future in batches:
            end = start + len(part)
            if not future.done():  # the client may have left
                future.set_result(
                    (probabilities[start:end], None if ids is None else ids[start:end], number)
                )
            start = end
