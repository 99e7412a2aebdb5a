"""Calibrating one batch: which calibrator, where the work is done, and the work; no transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, TypeVar

from anyio import CapacityLimiter, to_thread

from recalib.arrays import Floats
from recalib.errors import TooLargeError, UnavailableError
from service.predict.ids import PredictionIds
from service.predict.loaded_calibrators import LoadedCalibrator, LoadedCalibrators

__all__ = [
    "LARGE",
    "calibrate",
    "calibrate_with_ids",
    "checked",
    "get_or_load",
    "is_checked",
    "run_in_worker_thread",
]

T = TypeVar("T")

#: Bytes of body above which a batch leaves the event loop: below, a hop to a thread costs more
#: than the work; above, other requests would wait for it.
LARGE = 256 * 1024
#: One large batch at a time: two at once would only take turns on the interpreter lock.
_one_at_a_time = CapacityLimiter(1)


async def get_or_load(
    calibrators: LoadedCalibrators, model: str, selector: str
) -> LoadedCalibrator:
    """Return what serves under an alias or version, loading it where this is its first request.

    Raises
    ------
    NotFoundError: no such model, alias or version; also where the registry cannot be asked, and
        has said so the last time that it could.
    ConflictError: the model has no champion yet.
    UnavailableError: it is not loaded, and the registry cannot be reached or is slow.
    CorruptError: its stored parameters are damaged.
    """
    loaded = calibrators.get(model, selector)
    if loaded is not None:
        return loaded
    flight = asyncio.wrap_future(calibrators.submit_load(model, selector))
    try:
        return await asyncio.wait_for(flight, calibrators.patience_seconds)
    except (UnavailableError, TimeoutError) as error:
        absence = calibrators.last_not_found(model, selector)
        if absence is not None:
            raise absence from None
        if isinstance(error, UnavailableError):
            raise
        raise UnavailableError(
            f"the registry has not answered within {calibrators.patience_seconds:g} seconds; "
            "only calibrators that are loaded can be asked"
        ) from None


async def run_in_worker_thread(act: Callable[[], T]) -> T:
    """Do what takes long beside the event loop."""
    return await to_thread.run_sync(act, limiter=_one_at_a_time)


def calibrate(
    loaded: LoadedCalibrator,
    values: Floats,
    input: Literal["logits", "probabilities"],
    most_rows: int,
    segment: str = "",
) -> Floats:
    """Return calibrated probabilities, float32 (N, K).

    Parameters
    ----------
    segment: where the rows come from; see `recalib.registry.monitoring_settings`.

    Raises
    ------
    TooLargeError: more than `most_rows` rows.
    InputError: values that are not `input`, or K other than the model's.
    """
    return loaded.run(checked(loaded, values, input, most_rows), loaded.stream.segment_of(segment))


def calibrate_with_ids(
    loaded: LoadedCalibrator,
    values: Floats,
    input: Literal["logits", "probabilities"],
    most_rows: int,
    ids: PredictionIds,
    share: float,
    segment: str = "",
) -> tuple[Floats, list[str | None]]:
    """Return calibrated probabilities, and an id of the prediction for a share of the rows.

    The rows without one have None, as all have while there is no key; the rest is as with
    `calibrate`.
    """
    logits, number = checked(loaded, values, input, most_rows), loaded.stream.segment_of(segment)
    probabilities = loaded.run(logits, number)
    return probabilities, ids.made(loaded, logits, probabilities, share, number)


def checked(
    loaded: LoadedCalibrator,
    values: Floats,
    input: Literal["logits", "probabilities"],
    most_rows: int,
) -> Floats:
    """Return logits for the calibrator, (N, K), from a request's values; raises as `calibrate`."""
    if values.ndim == 2 and len(values) > most_rows:
        raise TooLargeError(input, found=f"{len(values)} rows", accepted=f"at most {most_rows}")
    return loaded.calibrator.to_logits(values, input)


def is_checked(
    loaded: LoadedCalibrator,
    rows: list[list[float]],
    input: Literal["logits", "probabilities"],
    most_rows: int,
) -> bool:
    """Return whether `checked` would take rows, which are plain (`recalib.files.json`), as is."""
    calibrator = loaded.calibrator
    return (
        input == "logits"
        and len(rows[0]) == calibrator.card.classes
        and len(rows) <= most_rows
        and calibrator.accepts(input)
    )
