"""Logits in, calibrated probabilities out, in as many requests as the server's limits ask for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats, check_logits, check_probabilities
from recalib.client.calibrators import CHAMPION, version_of
from recalib.client.errors import MalformedAnswerError, RefusedAsTooLargeError
from recalib.client.operations import Answer, Plan, Request, Session
from recalib.client.results import Likeliest, Predictions
from recalib.client.retry import path, read, succeed
from recalib.errors import InputError, NotFoundError

__all__ = ["calibrate", "calibrate_top", "predict"]

Rows: TypeAlias = ArrayLike | Sequence[Sequence[float | None]]
Input: TypeAlias = Literal["logits", "probabilities"]

_JSON, _NPY, _NPZ = "application/json", "application/x-npy", "application/x-npz"


class _Top(msgspec.Struct):
    """The likeliest classes, as an answer has them."""

    classes: list[list[int]]
    probabilities: list[list[float]]


class _TopAnswer(msgspec.Struct):
    top_k: _Top


@dataclass(frozen=True)
class _Asked:
    """What is asked for, of all rows."""

    model: str
    calibrator: str
    input: str
    form: str
    query: Mapping[str, str]


def calibrate(
    session: Session,
    model: str,
    values: Rows,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    segment: str = "",
) -> Plan[NDArray[np.float32]]:
    """Return calibrated probabilities, float32 (N, K).

    More rows than a request may carry go in several, all of them to one version: what an alias
    points to at the beginning.

    Parameters
    ----------
    values: (N, K), float16/32/64; −inf, or None in lists, is a masked class.
    calibrator: a version or an alias.
    input: what `values` are; never guessed from them.
    segment: where they come from, one of those that the model declares; empty for none.

    Raises
    ------
    InputError: values that are not `input`, with the row and the column.
    RefusedError: K other than the model's.
    MissingError: no such model, version or alias.
    ContradictionError: there is no champion yet.
    """
    rows = _checked(values, input)
    answers = np.empty(rows.shape, np.float32)

    def take(place: slice, answer: Answer) -> None:
        answers[place] = _probabilities(answer, answers[place].shape, _array)

    asked = _Asked(model, str(calibrator), input, _NPY, _of(segment))
    yield from _in_parts(session, rows, asked, take)
    return answers


def predict(
    session: Session,
    model: str,
    values: Rows,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    ids: float = 1.0,
    segment: str = "",
) -> Plan[Predictions]:
    """Return calibrated probabilities with ids, by which `add_labels` labels them later.

    Parameters
    ----------
    values, calibrator, input, segment: as `calibrate` has them.
    ids: the share of rows, drawn at random, that get one; the others have None.

    Raises
    ------
    As `calibrate`; and RefusedFormError: a server that makes no ids.
    """
    if not 0 <= ids <= 1:
        raise InputError("ids", found=f"{ids}", accepted="a share from 0 to 1")
    rows = _checked(values, input)
    answers = np.empty(rows.shape, np.float32)
    names: list[str | None] = [None] * len(rows)

    def take(place: slice, answer: Answer) -> None:
        answers[place] = _probabilities(answer, answers[place].shape, _member)
        if ids:
            names[place] = _ids(answer, len(names[place]))

    asked = _Asked(model, str(calibrator), input, _NPZ, {"ids": f"{ids:.9f}", **_of(segment)})
    yield from _in_parts(session, rows, asked, take)
    return Predictions(answers, names)


def calibrate_top(
    session: Session,
    model: str,
    values: Rows,
    k: int,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    segment: str = "",
) -> Plan[Likeliest]:
    """Return the k likeliest classes of each row, and their calibrated probabilities.

    Parameters
    ----------
    k: from 1 to the model's classes.
    values, calibrator, input, segment: as `calibrate` has them.

    Raises
    ------
    As `calibrate`.
    """
    rows = _checked(values, input)
    if not 1 <= k <= rows.shape[1]:
        raise InputError("k", found=f"{k}", accepted=f"1 to {rows.shape[1]}, the classes")
    classes = np.empty((len(rows), k), np.int64)
    probabilities = np.empty((len(rows), k), np.float32)

    def take(place: slice, answer: Answer) -> None:
        found, shape = read(answer, _TopAnswer).top_k, classes[place].shape
        for whole, part in ((classes, found.classes), (probabilities, found.probabilities)):
            if len(part) != shape[0] or any(len(row) != k for row in part):
                raise MalformedAnswerError(answer, f"has no {shape} likeliest classes")
            whole[place] = part

    query = {"top_k": str(k), "ids": "0", **_of(segment)}
    asked = _Asked(model, str(calibrator), input, _JSON, query)
    yield from _in_parts(session, rows, asked, take)
    return Likeliest(classes, probabilities)


def _of(segment: str) -> dict[str, str]:
    return {"segment": segment} if segment else {}


def _in_parts(
    session: Session, rows: Floats, asked: _Asked, take: Callable[[slice, Answer], None]
) -> Plan[None]:
    """Ask for all rows, as many at once as the server takes, and hand each answer over."""
    calibrator = asked.calibrator
    start = 0
    while start < len(rows):
        size = _fitting(session, rows)
        if start == 0 and size < len(rows):
            calibrator = yield from _pinned(session, rows[:1], asked)
        place = slice(start, min(start + size, len(rows)))
        try:
            answer = yield from _part(session, rows[place], asked, calibrator)
        except RefusedAsTooLargeError as error:
            if len(rows[place]) == 1:
                raise
            _shrink(session, rows[place], error.field)
        else:
            take(place, answer)
            start = place.stop


def _pinned(session: Session, row: Floats, asked: _Asked) -> Plan[str]:
    """Return the version that is to answer all parts."""
    try:
        return str((yield from version_of(session, asked.model, asked.calibrator)))
    except NotFoundError:
        # The server's own words, which say what to do.
        yield from _part(session, row, asked, asked.calibrator)
        raise


def _part(session: Session, rows: Floats, asked: _Asked, calibrator: str) -> Plan[Answer]:
    file = io.BytesIO()
    np.lib.format.write_array(file, rows, allow_pickle=False)
    query = {"calibrator": calibrator, "input": asked.input, **asked.query}
    headers = {"Content-Type": _NPY, "Accept": asked.form}
    place = path("models", asked.model, "calibrate")
    return succeed(session, Request("POST", place, query, headers, file.getvalue()))


def _probabilities(
    answer: Answer, shape: tuple[int, ...], read: Callable[[Answer, str], NDArray[Any]]
) -> NDArray[Any]:
    array = read(answer, "probabilities")
    if array.shape != shape or array.dtype.kind != "f":
        found = f"{array.dtype} {array.shape}"
        raise MalformedAnswerError(answer, f"is {found} where numbers {shape} were asked for")
    return array


def _ids(answer: Answer, rows: int) -> list[str | None]:
    array = _member(answer, "prediction_ids")
    if array.shape != (rows,) or array.dtype.kind != "S":
        found = f"{array.dtype} {array.shape}"
        raise MalformedAnswerError(answer, f"has ids {found} where text ({rows},) was asked for")
    return [one.decode("latin-1") or None for one in array.tolist()]


def _array(answer: Answer, name: str) -> NDArray[Any]:
    """Return the array of an npy answer."""
    return _read(answer, io.BytesIO(answer.body))


def _member(answer: Answer, name: str) -> NDArray[Any]:
    """Return one array of an npz answer."""
    try:
        content = zipfile.ZipFile(io.BytesIO(answer.body)).read(f"{name}.npy")
    except Exception as error:  # nor does zipfile promise anything
        raise MalformedAnswerError(answer, f"is no npz file with {name}: {error}") from None
    return _read(answer, io.BytesIO(content))


def _read(answer: Answer, file: io.BytesIO) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # NumPy promises nothing about what a broken header raises
        raise MalformedAnswerError(answer, f"is no npy array: {error}") from None
    return array


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
