"""Calibrating one batch: which calibrator, where the work is done, and the work; no transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from anyio import CapacityLimiter, to_thread

from recalib.arrays import Floats
from recalib.errors import TooLargeError
from service.predict.loaded import Loaded, LoadedCalibrators

__all__ = ["LARGE", "beside", "calibrate", "loaded_for"]

T = TypeVar("T")

#: Bytes of body above which a batch leaves the event loop: below, a hop to a thread costs more
#: than the work; above, other requests would wait for it.
LARGE = 256 * 1024
#: One large batch at a time: two at once would only take turns on the interpreter lock.
_one_at_a_time = CapacityLimiter(1)


async def loaded_for(calibrators: LoadedCalibrators, model: str, selector: str) -> Loaded:
    """Return what serves under an alias or version, loading it where this is its first request.

    Raises
    ------
    as `LoadedCalibrators.load`.
    """
    loaded = calibrators.get(model, selector)
    if loaded is None:
        loaded = await to_thread.run_sync(calibrators.load, model, selector)
    return loaded


async def beside(act: Callable[[], T]) -> T:
    """Do what takes long beside the event loop."""
    return await to_thread.run_sync(act, limiter=_one_at_a_time)


def calibrate(
    loaded: Loaded,
    values: Floats,
    input: Literal["logits", "probabilities"],
    most_rows: int,
) -> Floats:
    """Return calibrated probabilities, float32 (N, K).

    Raises
    ------
    TooLargeError: more than `most_rows` rows.
    InputError: values that are not `input`, or K other than the model's.
    """
    if values.ndim == 2 and len(values) > most_rows:
        raise TooLargeError(input, found=f"{len(values)} rows", accepted=f"at most {most_rows}")
    return loaded.run(loaded.calibrator.logits_from(values, input))
