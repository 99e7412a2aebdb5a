"""Calibrated probabilities of logits, in batches that respect the limits of the server."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.client.calibrators import CHAMPION, resolve_version
from recalib.client.class_columns import read_scores
from recalib.client.errors import InvalidRequestError, InvalidResponseError, RequestTooLargeError
from recalib.client.operations import Flow, Request, Response, Session
from recalib.client.results import Likeliest, Predictions
from recalib.client.retry import path, read_struct, send_checked
from recalib.contract.models import Task
from recalib.core.arrays import Floats, check_logits, check_probabilities
from recalib.core.label_arrays import check_label_scores
from recalib.core.options import check_choice
from recalib.errors import InputError, NotFoundError, RecalibWarning

Rows: TypeAlias = ArrayLike | Sequence[Sequence[float | None]]
Input: TypeAlias = Literal["logits", "probabilities"]

#: What arrays of an answer hold, by the kind of their dtype.
_KINDS = {"f": "numbers", "b": "truth values", "S": "texts"}
_JSON, _NPY, _NPZ = "application/json", "application/x-npy", "application/x-npz"


class _TopClasses(msgspec.Struct):
    """The top k classes, as the server encodes them."""

    classes: list[list[int]]
    probabilities: list[list[float]]


class _TopResponse(msgspec.Struct):
    top_k: _TopClasses


@dataclass(frozen=True)
class _Query:
    """The parameters of all requests of an operation."""

    model: str
    calibrator: str
    input: str
    media_type: str
    parameters: Mapping[str, str]
    #: Whether the values are (N,), the scores of class 1 of 2.
    is_column: bool


def calibrate(
    session: Session,
    model: str,
    values: Rows,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    segment: str = "",
    task: Task = "multiclass",
) -> Flow[NDArray[np.float32]]:
    """Return calibrated probabilities, float32 (N, K).

    A large array is sent in several requests. All use the same version: that of the
    alias at the start.

    Parameters
    ----------
    values: (N, K), float16/32/64; −inf is a masked class, in lists also None. Columns of a data
        frame with the names of the model's classes may have any order.
    calibrator: a version or an alias.
    input: what `values` contain; it is never guessed.
    segment: a segment that the model declares, or that the version has offsets for; empty for none.
    task: of the model; rows of `multilabel` probabilities have no fixed sum.

    Raises
    ------
    InputError: the values are not valid `input`, the error names row and column; or the columns
        of a data frame have other names than the model's classes.
    InvalidRequestError: K is not the number of classes of the model.
    ResourceNotFoundError: no such model, version or alias.
    ResourceConflictError: the model has no champion, and does not serve uncalibrated.

    A model without a champion answers with the classifier's own probabilities, and a
    `RecalibWarning` says so.
    """
    rows = yield from _read_rows(session, model, values, input, task)
    probabilities = np.empty(rows.shape, np.float32)

    def store(part: slice, response: Response) -> None:
        probabilities[part] = _read_array(response, "probabilities", probabilities[part], "f")

    parameters = _segment_parameter(segment)
    query = _Query(model, str(calibrator), input, _NPY, parameters, _is_column(values))
    yield from _send_in_batches(session, rows, query, store)
    return probabilities


def predict(
    session: Session,
    model: str,
    values: Rows,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    ids: float = 1.0,
    sets: bool = False,
    intervals: bool = False,
    accepted: bool = False,
    segment: str = "",
    group: str = "",
    task: Task = "multiclass",
) -> Flow[Predictions]:
    """Return calibrated probabilities and prediction ids, for `add_labels` later.

    Parameters
    ----------
    values, calibrator, input, segment, task: as for `calibrate`.
    ids: the share of rows that get an id, chosen at random; other rows get None, as all rows of a
        model without a champion do.
    sets: whether to return the prediction sets of the rows too.
    intervals: whether to return the Venn-Abers intervals too.
    accepted: whether to return which rows reach the threshold of rejection too.
    group: of all rows, such as their session, if they may depend on each other: a group counts once
        in monitoring. Empty for none.

    Raises
    ------
    As `calibrate`; ResponseFormatError: the server makes no ids; InvalidRequestError: `sets` or
    `accepted` of a version that was fitted without, or `intervals` of another map than venn_abers.
    """
    if not 0 <= ids <= 1:
        raise InputError("ids", found=f"{ids}", accepted="a share from 0 to 1")
    rows = yield from _read_rows(session, model, values, input, task)
    probabilities = np.empty(rows.shape, np.float32)
    prediction_ids: list[str | None] = [None] * len(rows)
    answers: dict[str, NDArray[Any]] = {}
    if sets:
        answers["sets"] = np.zeros(rows.shape, np.bool_)
    if intervals:
        answers["intervals"] = np.zeros((*rows.shape, 2), np.float32)
    if accepted:
        answers["accepted"] = np.zeros(len(rows), np.bool_)
    adaptations = np.zeros(len(rows), np.int64)

    def store(part: slice, response: Response) -> None:
        probabilities[part] = _read_array(response, "probabilities", probabilities[part], "f")
        adaptations[part] = int(response.headers.get("recalib-adaptation", 0))
        if ids:
            texts = _read_array(response, "prediction_ids", adaptations[part], "S").tolist()
            prediction_ids[part] = [text.decode("latin-1") or None for text in texts]
        for name, values in answers.items():
            values[part] = _read_array(response, name, values[part], values.dtype.kind)

    parameters = {"ids": f"{ids:.9f}", **_segment_parameter(segment)}
    if group:
        parameters["group"] = group
    parameters |= dict.fromkeys(answers, "true")
    query = _Query(model, str(calibrator), input, _NPZ, parameters, _is_column(values))
    uncalibrated = yield from _send_in_batches(session, rows, query, store)
    answers["adaptations"] = adaptations
    return Predictions(probabilities, prediction_ids, uncalibrated, **answers)


def calibrate_top(
    session: Session,
    model: str,
    values: Rows,
    k: int,
    *,
    calibrator: int | str = CHAMPION,
    input: Input = "logits",
    segment: str = "",
) -> Flow[Likeliest]:
    """Return the k most likely classes of each row, and their calibrated probabilities.

    Parameters
    ----------
    k: from 1 to K.
    values, calibrator, input, segment: as for `calibrate`.

    Raises
    ------
    As `calibrate`.
    """
    rows = yield from _read_rows(session, model, values, input)
    if not 1 <= k <= rows.shape[1]:
        raise InputError("k", found=f"{k}", accepted=f"1 to {rows.shape[1]}, the classes")
    classes = np.empty((len(rows), k), np.int64)
    probabilities = np.empty((len(rows), k), np.float32)

    def store(part: slice, response: Response) -> None:
        top, shape = read_struct(response, _TopResponse).top_k, classes[part].shape
        for target, values in ((classes, top.classes), (probabilities, top.probabilities)):
            if len(values) != shape[0] or any(len(row) != k for row in values):
                raise InvalidResponseError(response, f"has no {shape} likeliest classes")
            target[part] = values

    parameters = {"top_k": str(k), "ids": "0", **_segment_parameter(segment)}
    query = _Query(model, str(calibrator), input, _JSON, parameters, _is_column(values))
    yield from _send_in_batches(session, rows, query, store)
    return Likeliest(classes, probabilities)


def _is_column(values: Any) -> bool:
    return len(values.shape if hasattr(values, "shape") else np.shape(values[:1])) == 1


def _segment_parameter(segment: str) -> dict[str, str]:
    return {"segment": segment} if segment else {}


def _send_in_batches(
    session: Session, rows: Floats, query: _Query, store: Callable[[slice, Response], None]
) -> Flow[bool]:
    """Send all rows in batches as large as the server accepts, and store each response.

    Return whether the answers are uncalibrated.
    """
    calibrator, is_uncalibrated = query.calibrator, False
    start = 0
    while start < len(rows):
        size = _batch_size(session, rows)
        if start == 0 and size < len(rows):
            calibrator = yield from _pin_version(session, rows[:1], query)
        part = slice(start, min(start + size, len(rows)))
        try:
            response = yield from _send_batch(session, rows[part], query, calibrator)
        except RequestTooLargeError as error:
            if len(rows[part]) == 1:
                raise
            _reduce_limit(session, rows[part], error.field)
            continue
        if start and _is_uncalibrated(response) != is_uncalibrated:
            start = 0  # a version was promoted meanwhile: it calibrates all rows
            continue
        is_uncalibrated = _is_uncalibrated(response)
        if start == 0 and (reason := response.headers.get("recalib-warning")):
            warnings.warn(reason, RecalibWarning, stacklevel=2)
        store(part, response)
        start = part.stop
    if is_uncalibrated:
        message = f"model {query.model!r} has no champion: its probabilities are uncalibrated"
        warnings.warn(message, RecalibWarning, stacklevel=2)
    return is_uncalibrated


def _is_uncalibrated(response: Response) -> bool:
    return response.headers.get("recalib-calibrator") == "uncalibrated"


def _pin_version(session: Session, row: Floats, query: _Query) -> Flow[str]:
    """Return the version that calibrates all batches."""
    try:
        return str((yield from resolve_version(session, query.model, query.calibrator)))
    except NotFoundError:
        # The error of a request names the reason, and what to do.
        response = yield from _send_batch(session, row, query, query.calibrator)
        if not _is_uncalibrated(response):
            raise
        return query.calibrator


def _send_batch(session: Session, rows: Floats, query: _Query, calibrator: str) -> Flow[Response]:
    file = io.BytesIO()
    np.lib.format.write_array(file, rows, allow_pickle=False)
    parameters = {"calibrator": calibrator, "input": query.input, **query.parameters}
    headers = {"Content-Type": _NPY, "Accept": query.media_type}
    url_path = path("models", query.model, "calibrate")
    request = Request("POST", url_path, parameters, headers, file.getvalue())
    try:
        return (yield from send_checked(session, request))
    except InvalidRequestError as error:
        is_limit = isinstance(error, RequestTooLargeError)
        if is_limit or not query.is_column or error.field != query.input:
            raise
        accepted = f"{error.accepted}; values (N,) are of class 1 of 2, one row is x[None]"
        raise InputError(error.field, found=error.found, accepted=accepted) from error


def _read_array(response: Response, name: str, like: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return an array of an npz response, or the array of an npy response.

    Parameters
    ----------
    like: an array of the expected shape.
    kind: of the expected dtype, as NumPy abbreviates it.
    """
    is_archive, body = response.request.headers["Accept"] == _NPZ, io.BytesIO(response.body)
    array: NDArray[Any]
    try:
        if is_archive:
            array = np.load(body, allow_pickle=False)[name]
        else:
            array = np.lib.format.read_array(body, allow_pickle=False)
    except Exception as error:  # undocumented errors for a damaged file
        problem = f"is no {f'npz file with {name}' if is_archive else 'npy array'}: {error}"
        raise InvalidResponseError(response, problem) from None
    if array.shape != like.shape or array.dtype.kind != kind:
        found, expected = f"{array.dtype} {array.shape}", f"{_KINDS[kind]} {like.shape}"
        raise InvalidResponseError(response, f"has {name} {found} where {expected} are expected")
    return array


def _read_rows(
    session: Session, model: str, values: Any, input: str, task: str = "multiclass"
) -> Flow[Floats]:
    check_choice("input", input, Input)
    check_choice("task", task, Task)
    values = yield from read_scores(session, model, values, input)
    if task == "multilabel":
        return check_label_scores(values, input=input)
    if input == "probabilities":
        return check_probabilities(values)
    return check_logits(_replace_none(values))


def _replace_none(values: Any) -> Any:
    """Return lists with −inf instead of None, which JSON uses for masked classes."""
    if not isinstance(values, list | tuple):
        return values
    return [
        [-np.inf if value is None else value for value in row]
        if isinstance(row, list | tuple)
        else row
        for row in values
    ]


def _batch_size(session: Session, rows: Floats) -> int:
    """Return the number of these rows that one request may contain."""
    by_bytes: int = session.max_bytes // (rows.shape[1] * rows.itemsize)
    return max(1, min(len(rows), session.max_rows, by_bytes))


def _reduce_limit(session: Session, batch: Floats, field: str) -> None:
    """Halve the limit after the server has rejected a batch as too large."""
    if field == "body":
        session.max_bytes = min(session.max_bytes, batch.nbytes // 2)
    else:
        session.max_rows = min(session.max_rows, len(batch) // 2)
