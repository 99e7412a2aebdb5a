"""Labels of earlier predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.client.calibrators import CHAMPION
from recalib.client.class_columns import is_matrix, read_scores
from recalib.client.errors import InvalidResponseError, RequestTooLargeError
from recalib.client.operations import Flow, Request, Session
from recalib.client.results import Labelled
from recalib.client.retry import JSON, encode_json, fetch, path, read_struct, send_checked
from recalib.client.times import Times, check_times
from recalib.contract.labels import LabelOutcome
from recalib.contract.labels import TrafficAnswer as CountedTraffic
from recalib.core.arrays import Floats, check_logits
from recalib.core.inputs import is_missing
from recalib.core.label_arrays import check_label_matrix
from recalib.errors import InputError

if TYPE_CHECKING:
    from recalib.drift.target import Target


class _Outcomes(msgspec.Struct):
    items: list[LabelOutcome]


#: Rows that an error names.
_MAX_ROWS_NAMED = 10
#: The class of each row, or of a multilabel model the labels that it has.
RowLabels: TypeAlias = Sequence[int | str | Sequence[int | str]] | NDArray[np.integer | np.bool_]


def add_labels(
    session: Session,
    model: str,
    prediction_ids: Sequence[str],
    labels: RowLabels,
    *,
    groups: Sequence[str] | None = None,
) -> Flow[Labelled]:
    """Send the true classes of predictions; return the outcome of each label.

    Many labels are sent in several requests. A rejected label does not affect the others. After a
    broken connection, labels of the same call may be reported as duplicates.

    Parameters
    ----------
    prediction_ids: (N,), as `predict` returns them.
    labels: (N,), class indices, also as whole floats, or class labels if the model has them. Of a
        multilabel model: for each row a list of the labels that it has, or an array or a data frame
        (N, K) of zeros and ones. Nested lists are never read as zeros and ones.
    groups: (N,), the group of each row in place of that given to `predict`, "" for none: rows of a
        group may depend on each other, and count once in monitoring.

    Raises
    ------
    InputError: rows without a label, or lengths that differ.
    ResourceNotFoundError: no such model.
    """
    ids = list(prediction_ids)
    accepted = "rows that `predict` gave an id; leave out the others and their labels"
    _refuse_missing(ids, "prediction_ids", "id", accepted)
    label_list = yield from _read_labels(session, model, labels)
    if len(ids) != len(label_list):
        accepted = f"{len(ids)}, one for each prediction"
        raise InputError("labels", found=f"{len(label_list)} labels", accepted=accepted)
    group_list = check_groups(groups, len(ids))
    place = path("models", model, "labels")

    def request(part: slice) -> Request:
        rows = zip(ids[part], label_list[part], group_list[part], strict=True)
        # Servers of earlier versions refuse unknown fields.
        body = [
            {"prediction_id": id, "label": label, **({"group": group} if group else {})}
            for id, label, group in rows
        ]
        return Request("POST", place, headers=JSON, body=encode_json(body))

    return (yield from _send_in_parts(session, len(ids), request))


def add_observations(
    session: Session,
    model: str,
    logits: ArrayLike,
    labels: RowLabels,
    times: Times,
    *,
    segment: str = "",
    calibrator: int | str = CHAMPION,
    counted: bool = False,
    groups: Sequence[str] | None = None,
) -> Flow[Labelled]:
    """Send labelled predictions that another program made; return the outcome of each.

    They are monitored as predictions of the server are, if they are not older than the model's
    `maturity_seconds`. A row is identified by time, segment and logits, and counted once. Many rows
    are sent in several requests.

    Parameters
    ----------
    logits: the input of the calibrator, (N, K). Columns of a data frame with the names of the
        model's classes may have any order.
    labels: (N,), class indices, also as whole floats, or class labels if the model has them. Of a
        multilabel model: for each row a list of the labels that it has, or an array or a data frame
        (N, K) of zeros and ones. Nested lists are never read as zeros and ones.
    times: (N,), the time of each prediction, in seconds since 1970, or datetimes, also of NumPy
        and pandas; those without a time zone are in UTC.
    calibrator: the version that made the predictions, or an alias.
    counted: whether `add_traffic` has counted these predictions.
    groups: (N,), the group of each row, "" for none: rows of a group may depend on each other, and
        count once in monitoring.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
    ResourceConflictError: the model has no champion.
    InvalidRequestError: K is not the number of classes of the model.
    """
    rows = check_logits((yield from read_scores(session, model, logits, "logits")))
    label_list = yield from _read_labels(session, model, labels, rows.shape)
    if len(label_list) != len(rows):
        accepted = f"{len(rows)}, one for each row"
        raise InputError("labels", found=f"{len(label_list)} labels", accepted=accepted)
    time_array = check_times(times, len(rows))
    group_list = check_groups(groups, len(rows))
    place, query = path("models", model, "observations"), {"calibrator": str(calibrator)}

    def request(part: slice) -> Request:
        body = {
            "logits": _to_json(rows[part]),
            "labels": label_list[part],
            "times": time_array[part].tolist(),
            "segment": segment,
            # Servers of earlier versions refuse unknown fields.
            **({"counted": True} if counted else {}),
            **({"groups": group_list[part]} if groups is not None else {}),
        }
        return Request("POST", place, query, JSON, encode_json(body))

    return (yield from _send_in_parts(session, len(rows), request))


def add_traffic(
    session: Session,
    model: str,
    buckets: Sequence[Mapping[str, Any]],
    *,
    segment: str = "",
    target: Target = "top_label",
    calibrator: int | str = CHAMPION,
    idempotency_key: str | None = None,
) -> Flow[CountedTraffic]:
    """Send sums of predictions that another program made; `Aggregator` makes and sends them.

    They count as traffic of the server does. Buckets older than the model's `maturity_seconds` are
    not counted.

    Parameters
    ----------
    buckets: at most 200, each with `started_at`, `predictions` and `confidence_sums` by bin.
    target: what the bins and sums are of, `confidences.target` of the calibrator's card.
    calibrator: the version that made the predictions, or an alias.
    idempotency_key: of an earlier call whose response was lost, to count the same sums once.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
    ResourceConflictError: the model has no champion.
    InvalidRequestError: the target or the bins are not those of the calibrator.
    """
    body: dict[str, Any] = {"buckets": list(buckets), "segment": segment}
    if target != "top_label":  # servers of earlier versions do not know it
        body["target"] = target
    place, query = path("models", model, "traffic"), {"calibrator": str(calibrator)}
    return fetch(
        session, CountedTraffic, "POST", place, query=query, json=body, key=idempotency_key
    )


def check_row_labels(labels: RowLabels, shape: tuple[int, int] | None = None) -> list[Any]:
    """Return the label of each row as the server takes it.

    Parameters
    ----------
    labels: a class index, a class label or a list of these for each row; whole floats, as pandas
        makes them of a column with gaps, are indices. Of an array (N, K), by default of any size,
        the labels that each row has.

    Raises
    ------
    InputError: rows without a label, which the error names, or another type.
    """
    if is_matrix(labels):
        array = np.asarray(labels)
        matrix = check_label_matrix(array, shape=shape or array.shape)
        return [np.flatnonzero(row).tolist() for row in matrix]
    values: list[Any]
    if hasattr(labels, "__array__") and not hasattr(labels, "to_pylist"):
        array = np.asarray(labels).reshape(-1)
        values = array.tolist()
        if array.dtype.kind in "iu":
            return values
    else:
        values = list(labels)
    values = list(map(_row_label, values))
    _check_known(values)
    return values


def _read_labels(
    session: Session, model: str, labels: RowLabels, shape: tuple[int, int] | None = None
) -> Flow[list[Any]]:
    """Return `check_row_labels`; columns of a matrix may have the names of the classes."""
    if is_matrix(labels):
        labels = yield from read_scores(session, model, labels, "labels")
    return check_row_labels(labels, shape)


def _row_label(label: Any) -> Any:
    """Return a label as a Python value, a whole float as an index; None for a missing one."""
    value = label.as_py() if hasattr(label, "as_py") else label  # Arrow
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if is_missing(value) else value


def _refuse_missing(values: list[Any], field: str, noun: str, accepted: str) -> None:
    """Raise `InputError` that names the rows whose value is None."""
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        more = ", ..." if len(missing) > _MAX_ROWS_NAMED else ""
        rows = ", ".join(map(str, missing[:_MAX_ROWS_NAMED])) + more
        found = f"no {noun} in {len(missing)} of {len(values)} rows: {rows}"
        raise InputError(field, found=found, accepted=accepted)


def _check_known(labels: list[Any]) -> None:
    accepted = "rows whose label is known; send the others later"
    _refuse_missing(labels, "labels", "label", accepted)
    for row, label in enumerate(labels):
        if isinstance(label, bool) or not isinstance(label, int | str | list | tuple):
            accepted = "a class index or a class label"
            raise InputError(f"labels[{row}]", found=f"{label!r:.80}", accepted=accepted)


def check_groups(groups: Sequence[str] | None, rows: int) -> list[str]:
    """Return the group of each row, "" without groups; raise `InputError` for other values."""
    if groups is None:
        return [""] * rows
    names = [name.item() if isinstance(name, np.generic) else name for name in groups]
    if len(names) != rows:
        accepted = f"{rows}, one for each row"
        raise InputError("groups", found=f"{len(names)} groups", accepted=accepted)
    for row, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"groups[{row}]", found=f"{name!r:.80}", accepted="text")
    return names


def _to_json(rows: Floats) -> list[list[float | None]]:
    """Return rows as JSON values; −inf, a masked class, becomes null."""
    values: list[list[float | None]] = rows.tolist()
    for row, column in np.argwhere(np.isneginf(rows)):
        values[row][column] = None
    return values


def _send_in_parts(
    session: Session, count: int, request: Callable[[slice], Request]
) -> Flow[Labelled]:
    """Send the request of each part of `count` rows, as large as the server accepts."""
    outcomes: list[LabelOutcome] = []
    while len(outcomes) < count:
        size = min(session.max_labels, count - len(outcomes))
        part = slice(len(outcomes), len(outcomes) + size)
        try:
            response = yield from send_checked(session, request(part))
        except RequestTooLargeError:
            if size == 1:
                raise
            session.max_labels = size // 2
            continue
        items = read_struct(response, _Outcomes).items
        if len(items) != size:
            raise InvalidResponseError(response, f"is about {len(items)} labels of {size}")
        outcomes += items
    return Labelled(dict(Counter(outcome.status for outcome in outcomes)), outcomes)
