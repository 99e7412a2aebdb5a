"""Calibration of one batch, independent of the transport.

REST (`/v1`), the Open Inference Protocol (`/v2`) and both gRPC services pass `calibrate_batch`
functions that decode a request and encode its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, TypeVar

import msgspec
import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from recalib.core.arrays import Floats, probability_resemblance, undeclared_text
from recalib.core.group_numbers import group_number
from recalib.errors import InputError, NotFoundError, TooLargeError, UnavailableError
from recalib.maps.venn_abers import VennAbers
from recalib.registry import Model, Transaction
from recalib.sets.rejection import accepts
from service.access.authenticator import current_principal
from service.serving.ids import NOWHERE, Origin
from service.serving.loaded_calibrators import (
    LoadedCalibrator,
    LoadedCalibrators,
    check_calibrated,
)
from service.serving.micro_batch import MAX_NUMBERS, compute
from service.state import State

T = TypeVar("T")

Input = Literal["logits", "probabilities"]

#: Bytes of a request above which its batch leaves the event loop. Below, a hop to a thread costs
#: more than the work; above, other requests would wait for it.
_MAX_BYTES_ON_LOOP = 256 * 1024
#: Latest versions among which an error looks for those that have thresholds.
_MAX_VERSIONS = 100
#: One large batch at a time: two would only alternate on the interpreter lock.
_large_batches = CapacityLimiter(1)


class Batch(msgspec.Struct, frozen=True):
    """Decoded rows and what to do with them."""

    #: (N, K), unchecked; or few plain rows (`recalib.files.json.are_plain`).
    values: Floats | list[list[float]]
    #: What the values are; never inferred from them.
    input: Input = "logits"
    #: Number of most likely classes to return of each row; None: the probabilities of all.
    top_k: int | None = None
    #: Whether to return the prediction set of each row.
    sets: bool = False
    #: Whether to return the Venn-Abers interval of each probability.
    intervals: bool = False
    #: Whether to return which rows the rule of rejection accepts.
    accepted: bool = False
    #: Share of rows that get a prediction id, in [0, 1].
    ids: float = 0.0
    #: A segment of the model (`recalib.core.monitoring_settings`) and of the version; unknown to
    #: one of them, it counts as "" there.
    segment: str = ""
    #: The group of the rows, whose other rows they may depend on; "" for none.
    group: str = ""


class CalibrationResult(msgspec.Struct, frozen=True):
    """The result of a batch, for the encoders."""

    #: float32 (N, K).
    probabilities: Floats
    loaded: LoadedCalibrator
    top_k: int | None = None
    #: (N, K), whether each class is in the prediction set; None if no sets were requested.
    sets: NDArray[np.bool_] | None = None
    #: float32 (N, K, 2), [p0, p1] of each probability; None if no intervals were requested.
    intervals: NDArray[np.float32] | None = None
    #: (N,), whether a row is accepted; None if this was not requested.
    accepted: NDArray[np.bool_] | None = None
    #: (N,), None for a row without id; None if no ids were requested.
    ids: list[str | None] | None = None
    #: Number of the state that adapted the probabilities to label shift; None without.
    adaptation: int | None = None
    #: Why the rows may not be logits; empty if they look like some.
    warning: str = ""


async def calibrate_batch(
    state: State,
    loaded: LoadedCalibrator,
    size: int,
    decode: Callable[[], Batch],
    encode: Callable[[CalibrationResult], T],
) -> T:
    """Decode, calibrate and encode a batch for the current caller.

    Only this function decides where the work is done: a large batch in a thread, a small batch on
    the event loop, a very small batch together with others.

    Parameters
    ----------
    size: of the request, in bytes.

    Raises
    ------
    InputError: raised by `decode`; `top_k` or `ids` is out of range; a group without `ids`; `sets`
        or `accepted` of a version without thresholds, or `intervals` of another map than venn_abers
        or of a version with segments; a multilabel model gets `top_k`, or a segment without `ids`;
        the values are not what `input` says, or their number of classes is not the model's.
    TooLargeError: more than `max_rows` rows.
    LimitedError: the caller exceeds its rows per second.
    """
    if size > _MAX_BYTES_ON_LOOP:
        batch = await to_thread.run_sync(decode, limiter=_large_batches)
        if batch.sets or batch.accepted:
            await _check_thresholds(state, loaded, batch)
        if batch.ids:
            await state.ids.ready()
        work = partial(_calibrate_alone, state, loaded, batch, encode)
        return await to_thread.run_sync(work, limiter=_large_batches)
    batch = decode()
    if batch.sets or batch.accepted:
        await _check_thresholds(state, loaded, batch)
    if batch.ids and not state.ids.has_key:
        await state.ids.ready()
    logits = _admit_rows(state, loaded, batch)
    origin = _origin(loaded, batch)
    if logits.size <= MAX_NUMBERS:
        result = await state.micro_batcher.submit(loaded, origin, batch.ids, logits)
    else:
        result = compute(state.ids, loaded, origin, batch.ids, logits)
    return encode(_result(loaded, batch, logits, *result))


def _calibrate_alone(
    state: State, loaded: LoadedCalibrator, batch: Batch, encode: Callable[[CalibrationResult], T]
) -> T:
    logits = _admit_rows(state, loaded, batch)
    origin = _origin(loaded, batch)
    result = compute(state.ids, loaded, origin, batch.ids, logits)
    return encode(_result(loaded, batch, logits, *result))


def _result(
    loaded: LoadedCalibrator,
    batch: Batch,
    logits: Floats,
    probabilities: Floats,
    ids: list[str | None] | None,
    adaptation: int | None,
) -> CalibrationResult:
    plain, sets, intervals, accepted = probabilities, None, None, None
    if adaptation is not None and (batch.sets or batch.accepted):
        # Their thresholds are of answers without adaptation.
        plain = loaded.calibrator.predict_float32(logits)
    if batch.sets:
        sets = loaded.calibrator.sets_of(plain, logits)
    if batch.intervals:
        intervals = loaded.calibrator.intervals_of(logits).astype(np.float32)
    rejection = loaded.calibrator.card.rejection
    if batch.accepted and rejection is not None:
        accepted = accepts(plain, rejection)
    warning = _resemblance(loaded, batch, logits)
    answers = sets, intervals, accepted, ids, adaptation
    return CalibrationResult(probabilities, loaded, batch.top_k, *answers, warning)


def _resemblance(loaded: LoadedCalibrator, batch: Batch, logits: Floats) -> str:
    """Return why rows that were sent as logits look like probabilities; "" if they do not."""
    if batch.input != "logits" or loaded.calibrator.is_multilabel:
        return ""
    # The first row of logits is enough in practice, and the rest takes microseconds.
    least = min(batch.values[0]) if isinstance(batch.values, list) else logits[0].min()
    if least < 0:
        return ""
    reason = probability_resemblance(logits)
    return undeclared_text(reason) if reason else ""


#: By the name of an answer: what its version has, the option of the fit, and the field of the card.
THRESHOLDS = {
    "sets": ("thresholds of prediction sets", "sets", "sets"),
    "accepted": ("a threshold of rejection", "max_risk", "rejection"),
}


async def _check_thresholds(state: State, loaded: LoadedCalibrator, batch: Batch) -> None:
    """Raise `InputError` for an answer that the version has no thresholds for."""
    for answer, (_, _, field) in THRESHOLDS.items():
        if getattr(batch, answer) and getattr(loaded.calibrator.card, field) is None:
            await to_thread.run_sync(_refuse, state, loaded, answer)


def _refuse(state: State, loaded: LoadedCalibrator, answer: str) -> None:
    others: list[int] = []
    with suppress(NotFoundError, UnavailableError), state.registry.reading() as tx:
        others = versions_with_thresholds(tx, tx.models.get(loaded.model), answer)
    raise missing_thresholds(answer, loaded.model, loaded.version, others)


def versions_with_thresholds(tx: Transaction, model: Model, answer: str) -> list[int]:
    """Return those of a model's latest versions that give an answer: `sets` or `accepted`."""
    versions, field = tx.calibrators.newest(model, 0.0, _MAX_VERSIONS), THRESHOLDS[answer][2]
    return [row.version for row in versions if row.card.get(field) is not None]


def missing_thresholds(
    answer: str, model: str, version: int | None, others: Sequence[int]
) -> InputError:
    """Return the error of an answer that a version has no thresholds for.

    Parameters
    ----------
    answer: `sets` or `accepted`.
    version: 0 or None for a model without a champion.
    others: versions of the model that give the answer.
    """
    thresholds, option, _ = THRESHOLDS[answer]
    owner = f"version {version}" if version else "no champion"
    owner += f" of model {model!r}, without {thresholds}"
    versions = ", ".join(map(str, others)) or "none yet"
    accepted = f"a version that was fitted with {option}: {versions}"
    return InputError(answer, found=owner, accepted=accepted)


def _origin(loaded: LoadedCalibrator, batch: Batch) -> Origin:
    if not batch.segment and not batch.group:
        return NOWHERE
    offsets = batch.segment if batch.segment in loaded.offsets else ""
    return Origin(loaded.stream.segment_of(batch.segment), group_number(batch.group), offsets)


def _admit_rows(state: State, loaded: LoadedCalibrator, batch: Batch) -> Floats:
    """Return checked logits, and count their rows against the caller's limit."""
    classes = loaded.calibrator.card.classes
    if loaded.calibrator.is_multilabel:
        _check_multilabel(loaded, batch)
    if batch.top_k is not None and not 1 <= batch.top_k <= classes:
        accepted = f"1 to {classes}, the classes"
        raise InputError("top_k", found=str(batch.top_k), accepted=accepted)
    card = loaded.calibrator.card
    if batch.intervals and (card.map != VennAbers.name or loaded.offsets):
        found = f"version {loaded.version} of model {loaded.model!r}, "
        found += "with segments" if loaded.offsets else f"of the map {card.map}"
        accepted = "a version of the map venn_abers, without segments"
        raise InputError("intervals", found=found, accepted=accepted)
    if not 0 <= batch.ids <= 1:
        raise InputError("ids", found=str(batch.ids), accepted="a share of rows, 0 to 1")
    if batch.group and not batch.ids:
        accepted = "none without ids, since labels refer to groups by them"
        raise InputError("group", found=repr(batch.group)[:80], accepted=accepted)
    logits = check_logits(loaded, batch.values, batch.input, state.settings.max_rows)
    state.access.limiter.take_rows(current_principal(), len(logits))
    return logits


def _check_multilabel(loaded: LoadedCalibrator, batch: Batch) -> None:
    """Raise `InputError` for an option that needs one class for each row, or has no effect."""
    task = f"the task of model {loaded.model!r} is multilabel"
    if batch.top_k:
        raise InputError("top_k", found=str(batch.top_k), accepted=f"none: {task}")
    if batch.segment and not batch.ids:
        accepted = f"none without ids: {task}, so only rows with ids are counted"
        raise InputError("segment", found=repr(batch.segment)[:80], accepted=accepted)


def check_logits(
    loaded: LoadedCalibrator,
    values: Floats | list[list[float]],
    input: Input,
    max_rows: int,
) -> Floats:
    """Return checked logits (N, K); raise `InputError` and `TooLargeError` as `calibrate_batch`.

    Rows in lists are finite and equally long, so only their number and width are checked.
    """
    is_plain = isinstance(values, list)
    array = np.array(values, np.float32) if is_plain else np.asarray(values)
    if array.ndim == 2 and len(array) > max_rows:
        raise TooLargeError(input, found=f"{len(array)} rows", accepted=f"at most {max_rows}")
    calibrator = loaded.calibrator
    if (
        is_plain
        and input == "logits"
        and array.shape[1] == calibrator.card.classes
        and calibrator.accepts(input)
    ):
        return array
    return calibrator.to_logits(array, input)


async def get_or_load(
    calibrators: LoadedCalibrators, model: str, selector: str
) -> LoadedCalibrator:
    """Return the calibrator under an alias or version; load it on its first request.

    Raises
    ------
    NotFoundError: no such model, alias or version; also if the registry cannot be reached and
        answered so the last time.
    ConflictError: the model has no champion, and does not serve uncalibrated.
    UnavailableError: the calibrator is not loaded, and the registry is unreachable or slow.
    CorruptError: its stored parameters are damaged.
    """
    loaded = calibrators.get(model, selector)
    if loaded is not None:
        return loaded
    future = asyncio.wrap_future(calibrators.submit_load(model, selector))
    try:
        return await asyncio.wait_for(future, calibrators.patience_seconds)
    except (UnavailableError, TimeoutError) as error:
        not_found = calibrators.last_not_found(model, selector)
        if not_found is not None:
            raise not_found from None
        if isinstance(error, UnavailableError):
            raise
        raise UnavailableError(
            f"the registry has not answered within {calibrators.patience_seconds:g} seconds; "
            "only calibrators that are loaded can be asked"
        ) from None


async def get_version(
    calibrators: LoadedCalibrators, model: str, selector: str
) -> LoadedCalibrator:
    """Return a version as `get_or_load`; `ConflictError` if the model has no champion."""
    loaded = await get_or_load(calibrators, model, selector)
    check_calibrated(loaded)
    return loaded
