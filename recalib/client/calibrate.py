"""Logits in, calibrated probabilities out, in as many requests as the server's limits ask for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats, check_logits, check_probabilities
from recalib.client.asking import path, succeed
from recalib.client.calibrators import CHAMPION, version_of
from recalib.client.errors import MalformedAnswerError, RefusedAsTooLargeError
from recalib.client.plans import Answer, Plan, Request, Session
from recalib.errors import InputError, NotFoundError

__all__ = ["calibrate"]

_NPY = "application/x-npy"


def calibrate(
    session: Session,
    model: str,
    values: ArrayLike | Sequence[Sequence[float | None]],
    *,
    calibrator: int | str = CHAMPION,
    input: Literal["logits", "probabilities"] = "logits",
) -> Plan[NDArray[np.float32]]:
    """Return calibrated probabilities, float32 (N, K).

    More rows than a request may carry go in several, all of them to one version: what an alias
    points to at the beginning.

    Parameters
    ----------
    values: (N, K), float16/32/64; −inf, or None in lists, is a masked class.
    calibrator: a version or an alias.
    input: what `values` are; never guessed from them.

    Raises
    ------
    InputError: values that are not `input`, with the row and the column.
    RefusedError: K other than the model's.
    MissingError: no such model, version or alias.
    ContradictionError: there is no champion yet.
    """
    rows = _checked(values, input)
    answers = np.empty(rows.shape, np.float32)
    start = 0
    while start < len(rows):
        size = _fitting(session, rows)
        if start == 0 and size < len(rows):
            calibrator = yield from _pinned(session, model, rows[:1], calibrator, input)
        part = rows[start : start + size]
        try:
            answers[start : start + size] = yield from _part(
                session, model, part, str(calibrator), input
            )
        except RefusedAsTooLargeError as error:
            if len(part) == 1:
                raise
            _shrink(session, part, error.field)
        else:
            start += size
    return answers


def _pinned(
    session: Session, model: str, row: Floats, calibrator: int | str, input: str
) -> Plan[int]:
    """Return the version that is to answer all parts."""
    try:
        return (yield from version_of(session, model, calibrator))
    except NotFoundError:
        # The server's own words, which say what to do.
        yield from _part(session, model, row, str(calibrator), input)
        raise


def _part(
    session: Session, model: str, rows: Floats, calibrator: str, input: str
) -> Plan[NDArray[np.float32]]:
    file = io.BytesIO()
    np.lib.format.write_array(file, rows, allow_pickle=False)
    query = {"calibrator": calibrator, "input": input}
    headers = {"Content-Type": _NPY, "Accept": _NPY}
    place = path("models", model, "calibrate")
    request = Request("POST", place, query, headers, file.getvalue())
    return _read(rows.shape, (yield from succeed(session, request)))


def _read(shape: tuple[int, ...], answer: Answer) -> NDArray[np.float32]:
    try:
        array = np.lib.format.read_array(io.BytesIO(answer.body), allow_pickle=False)
    except Exception as error:  # NumPy promises nothing about what a broken header raises
        raise MalformedAnswerError(answer, f"is no npy array: {error}") from None
    if array.shape != shape or array.dtype.kind != "f":
        found = f"{array.dtype} {array.shape}"
        raise MalformedAnswerError(answer, f"is {found} where numbers {shape} were asked for")
    numbers: NDArray[np.float32] = array.astype(np.float32, copy=False)
    return numbers


def _checked(values: Any, input: str) -> Floats:
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    if input == "probabilities":
        return check_probabilities(values)
    return check_logits(_unmasked(values))


def _unmasked(values: Any) -> Any:
    """Return lists with −inf in place of None, as JSON has masked classes; all else as it is."""
    if not isinstance(values, list | tuple):
        return values
    return [
        [-np.inf if one is None else one for one in row] if isinstance(row, list | tuple) else row
        for row in values
    ]


def _fitting(session: Session, rows: Floats) -> int:
    """Return how many of these rows a request may carry."""
    by_size: int = session.most_bytes // (rows.shape[1] * rows.itemsize)
    return max(1, min(len(rows), session.most_rows, by_size))


def _shrink(session: Session, refused: Floats, field: str) -> None:
    """Remember that a server takes less than it was sent: half of it may do."""
    if field == "body":
        session.most_bytes = min(session.most_bytes, refused.nbytes // 2)
    else:
        session.most_rows = min(session.most_rows, len(refused) // 2)
