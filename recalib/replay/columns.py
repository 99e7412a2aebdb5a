"""Convert the columns of a log to checked arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, refuse_first
from recalib.core.group_numbers import group_number
from recalib.core.lazy_import import LazyModule
from recalib.drift import ClassRows
from recalib.drift.target import Target, monitored_probabilities, values_of_predicted_class
from recalib.errors import InputError
from recalib.replay.probabilities import (
    TOLERANCE,
    check_largest_probabilities,
    is_lists,
    label_sets_of,
    matrix_of,
    number_text,
)
from recalib.replay.promises import Promises, kept_of
from recalib.replay.times import LATEST, is_text

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

Values = NDArray[np.float64]

_REQUIRED = ("time", "confidence", "correct")
_OPTIONAL = ("label_time", "segment", "group", "probabilities")
#: All columns that are read without `classes`, and the index of the true class, read with it.
COLUMNS = (*_REQUIRED, *_OPTIONAL)
_LABEL = "label"
#: All columns that are read of a multilabel log.
_MULTILABEL = ("time", "probabilities", "labels")
MULTILABEL_COLUMNS = (*_MULTILABEL, "label_time", "segment", "group")
#: Columns that depend on the outcome: groups by their values would differ in accuracy by design.
_OUTCOMES = ("correct", "label", "labels", "label_time")
#: Tolerance for clocks: a label may not be earlier than its prediction by more.
_SKEW_SECONDS = 300.0
_SECONDS = "a time up to the year 9999"
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, eq=False)
class LogRows:
    """Predictions (N,), in any order."""

    #: Prediction times in seconds.
    time: Values
    confidence: Values
    #: 1 or 0, NaN without a label.
    correct: Values
    #: Seconds from prediction to label, at least 0; NaN without a label, 0 without `label_time`.
    delay: Values
    #: Names, or None without the column.
    segment: NDArray[np.object_] | None = None
    #: With watched classes: their probabilities. With these, or with the probabilities of two
    #: classes: the index of the predicted class, (N,). A multilabel row predicts the label
    #: that it draws, and has no `class_rows`.
    class_rows: ClassRows | None = None
    predicted: NDArray[np.int64] | None = None
    #: Numbers of the groups of dependent rows, 0 for none; None without the column.
    group: NDArray[np.int64] | None = None
    #: Whether the row keeps each promise of the calibrator, see `kept_of`; None without promises.
    kept: Values | None = None
    #: Probabilities (N, K), and true classes (N,), −1 without a label, where they are asked for.
    matrix: Floats | None = None
    label: NDArray[np.int64] | None = None

    def pairs(self, target: Target) -> tuple[Values, Values]:
        """Return probabilities and outcomes of the target, (N,) each; NaN without a label.

        The positive class needs the probabilities of two classes.
        """
        if target == "top_label" or self.predicted is None:
            return self.confidence, self.correct
        p, y = (
            values_of_predicted_class(values, self.predicted, target)
            for values in (self.confidence, self.correct)
        )
        return p, y

    def select(self, index: NDArray[Any]) -> LogRows:
        """Return the rows of an index or a mask."""
        columns = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None:
                is_rows = isinstance(column, ClassRows)
                columns[field.name] = column.select(index) if is_rows else column[index]
        return LogRows(**columns)

    @staticmethod
    def concatenate(parts: list[LogRows]) -> LogRows:
        """Return the rows of all parts."""
        columns: dict[str, Any] = {}
        for field in fields(LogRows):
            values = [getattr(part, field.name) for part in parts]
            values = [column for column in values if column is not None]
            if field.name == "class_rows":
                columns[field.name] = ClassRows.concatenate(values) if values else None
            elif values:
                columns[field.name] = np.concatenate(values)
            else:
                columns[field.name] = np.zeros(0) if field.name in _NUMBERS else None
        return LogRows(**columns)


#: The columns of `LogRows` that all logs have.
_NUMBERS = ("time", "confidence", "correct", "delay")


def check_schema(
    schema: Any, *, with_labels: bool = False, multilabel: bool = False, with_promises: bool = False
) -> list[str]:
    """Return the columns to read.

    With `probabilities`, `confidence` is optional: it is the largest probability. With `label` too,
    `correct` is optional: it is whether this probability is the label's.

    Parameters
    ----------
    with_labels: whether `probabilities` and `label` are required; otherwise `label` is read only
        in place of `correct`.
    multilabel: whether rows have any number of labels, in `labels`.
    with_promises: whether `label` is read if it is there, for the promises of the calibrator.

    Raises
    ------
    InputError: a column is missing, occurs twice, or has a wrong type.
    """
    required: tuple[str, ...] = _REQUIRED
    read: tuple[str, ...] = COLUMNS
    if multilabel:
        required, read = _MULTILABEL, MULTILABEL_COLUMNS
    elif with_labels:
        required = (*required, "probabilities", _LABEL)
    optional = [name for name in _OPTIONAL if name not in required]
    sources = {"confidence": {"probabilities"}, "correct": {"probabilities", _LABEL}}
    for name in required:
        derived = not multilabel and sources.get(name, {""}) <= set(schema.names)
        if name not in schema.names and not derived:
            accepted = f"columns {', '.join(required)}, and {', '.join(optional)} where known"
            found = ", ".join(map(repr, schema.names[:20])) or "no columns"
            raise InputError(name, found=found, accepted=accepted)
    if not multilabel and (with_labels or with_promises or "correct" not in schema.names):
        read = (*read, _LABEL)
    names = [name for name in read if name in schema.names]
    for name in names:
        if schema.names.count(name) > 1:
            raise InputError(name, found="several columns of that name", accepted="one")
        kind = schema.field(name).type
        if not _legal(name, kind, multilabel):
            raise InputError(name, found=f"a column of type {kind!s:.60}", accepted=_TYPES[name])
    return names


def check_split_columns(schema: Any, columns: Sequence[str]) -> None:
    """Check names of columns that divide the rows into segments.

    Raises
    ------
    InputError: a column is missing, is named twice, or depends on the outcome.
    """
    for name in columns:
        if schema.names.count(name) != 1:
            times = "several columns" if name in schema.names else "no column"
            names = [other for other in schema.names if other not in _OUTCOMES]
            accepted = f"one of {', '.join(map(repr, names[:20]))}"
            raise InputError("find_segments", found=f"{times} {name!r:.80}", accepted=accepted)
        if name in _OUTCOMES or columns.count(name) > 1:
            reason = "known only with the label" if name in _OUTCOMES else "named twice"
            accepted = "different columns that are known before the label"
            raise InputError("find_segments", found=f"{name!r}, {reason}", accepted=accepted)


_TYPES = {
    "time": "numbers since 1970, timestamps, dates, or texts as in 2026-01-31T23:59:59Z",
    "confidence": "floats",
    "correct": "booleans, null where there is no label (or 1 and 0)",
    "label_time": "as `time`; null where there is no label",
    "segment": "text, integers or booleans",
    "group": "text, integers or booleans; null for a row that depends on no other",
    "probabilities": "lists of floats, one for each class; of two classes also floats, P(y = 1)",
    "label": "indices of the true classes, or their names; null where there is no label",
    "labels": "lists of zeros and ones, one for each label; null where labels are not known",
}


def _legal(name: str, kind: Any, multilabel: bool) -> bool:
    types = pa.types
    if name == "probabilities":
        is_column = not multilabel and types.is_floating(kind)
        return bool(is_column or is_lists(kind, types.is_floating))
    if name == "labels":
        numbers = types.is_floating, types.is_integer, types.is_boolean
        return is_lists(kind, *numbers)
    if pa.types.is_null(kind):  # a column of nulls only
        return name in ("correct", _LABEL, *_OPTIONAL)
    if name in ("segment", "group") and types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind) or types.is_integer(kind) or is_text(kind):
        return name not in ("segment", "group") or not types.is_floating(kind)
    if name in ("time", "label_time"):
        return bool(types.is_timestamp(kind) or types.is_date(kind))
    if name in ("confidence", _LABEL):
        return False
    return bool(types.is_boolean(kind))


def times_of(batch: Any) -> Values:
    """Return the prediction times of a batch (N,), in seconds, not checked."""
    return numbers_of(batch, "time")


def rows_of(
    batch: Any,
    first_row: int,
    classes: int | None = None,
    watched: Sequence[int] | None = None,
    *,
    multilabel: bool = False,
    promises: Promises | None = None,
    with_matrix: bool = False,
) -> LogRows:
    """Return the rows of a batch, checked; errors count rows from `first_row`.

    Parameters
    ----------
    classes: required number of `probabilities` per row.
    watched: indices of classes whose probabilities to return, for a batch with `label`.
    multilabel: whether a row has any number of labels. It is then a prediction of one of them,
        drawn by the digest of its time and its probabilities, which do not depend on the labels.
    promises: of a batch with `probabilities` and `label`: those for `kept`.
    with_matrix: whether to return `matrix` and `label` too.

    Raises
    ------
    InputError: a time or a confidence is null, not finite or out of range; `correct` is neither 1
        nor 0; a label is earlier than its prediction, or has a time but no value; probabilities
        are not valid, or do not agree with the confidence; a label is not that of a class, or does
        not agree with `correct`.
    """
    names = batch.schema.names
    time = numbers_of(batch, "time")
    # `~(<=)` also rejects NaN.
    _refuse("time", ~(np.abs(time) <= LATEST), time, first_row, _SECONDS)
    if multilabel:
        return _rows_of_labels(batch, time, first_row, classes)
    matrix = None
    if "probabilities" in names:
        matrix = matrix_of(batch.column("probabilities"), first_row, classes)
    predicted = None if matrix is None else matrix.argmax(axis=1)
    confidence = _confidences(batch, matrix, predicted, first_row)
    labels = None
    if matrix is not None and _LABEL in names:
        labels = _labels(batch, matrix.shape[1], first_row)
    if labels is None or "correct" in names:
        outcome, correct = "correct", _correct(batch, matrix, labels, first_row)
    else:
        outcome, correct = _LABEL, np.where(labels < 0, np.nan, labels == predicted)
    labelled = ~np.isnan(correct)
    delay, segment = _delays(batch, time, labelled, first_row, outcome), _segments(batch)
    class_rows, group = None, _groups(batch)
    if matrix is not None and labels is not None and watched is not None:
        class_rows = ClassRows.from_probabilities(matrix, labels, time, watched, groups=group)
    kept = kept_of(matrix, labels, promises or Promises())
    if class_rows is None and (matrix is None or matrix.shape[1] > 2):
        predicted = None  # not used
    if not with_matrix:
        matrix = labels = None
    columns = time, confidence, correct, delay, segment, class_rows, predicted, group, kept
    return LogRows(*columns, matrix, labels)


def _rows_of_labels(batch: Any, time: Values, first_row: int, classes: int | None) -> LogRows:
    """Return a prediction of the drawn label of each multilabel row."""
    matrix = matrix_of(batch.column("probabilities"), first_row, classes, multilabel=True)
    sets, labelled = label_sets_of(batch.column("labels"), first_row, matrix.shape[1])
    drawn = _draw(time, matrix)
    rows = np.arange(len(drawn))
    correct = np.where(labelled, sets[rows, drawn], np.nan)
    delay, segment = _delays(batch, time, labelled, first_row, "labels"), _segments(batch)
    confidence = matrix[rows, drawn].astype(np.float64)
    return LogRows(time, confidence, correct, delay, segment, None, drawn, _groups(batch))


def _draw(time: Values, matrix: Floats) -> NDArray[np.int64]:
    """Return one of the K labels of each row, (N,), uniformly by the digest of the row."""
    columns = [
        np.ascontiguousarray(values, kind).view(np.uint8).reshape(len(time), -1)
        for values, kind in ((time, "<f8"), (matrix, "<f4"))
    ]
    content = np.hstack(columns)
    data, width = content.tobytes(), content.shape[1]
    digests = (
        hashlib.blake2b(data[start : start + width], digest_size=8).digest()
        for start in range(0, len(data), width)
    )
    numbers = [int.from_bytes(digest, "little") % matrix.shape[1] for digest in digests]
    return np.array(numbers, np.int64)


def _labels(batch: Any, classes: int, first_row: int) -> NDArray[np.int64]:
    """Return the index of the true class, (N,), −1 without a label."""
    values = numbers_of(batch, _LABEL)
    labelled = ~np.isnan(values)
    outside = labelled & ~((values >= 0) & (values < classes) & (values % 1 == 0))
    _refuse(_LABEL, outside, values, first_row, f"0 to {classes - 1}, null without a label")
    return np.where(labelled, values, -1).astype(np.int64)


def _correct(
    batch: Any, matrix: Floats | None, labels: NDArray[np.int64] | None, first_row: int
) -> Values:
    """Return the column `correct` (N,), NaN without a label, which agrees with the labels."""
    correct = numbers_of(batch, "correct")
    labelled = ~np.isnan(correct)
    neither = labelled & (correct != 0) & (correct != 1)
    _refuse("correct", neither, correct, first_row, "true or false, null without a label")
    if matrix is None or labels is None:
        return correct
    values, differs = numbers_of(batch, _LABEL), labelled != (labels >= 0)
    _refuse(_LABEL, differs, values, first_row, "null where `correct` is null, and only there")
    rows = np.arange(len(labels))
    of_label = matrix[rows, np.maximum(labels, 0)]
    others = matrix.copy()
    others[rows, np.maximum(labels, 0)] = -1
    other = others.max(axis=1)
    disagrees = np.where(correct == 1, of_label < other - TOLERANCE, other < of_label - TOLERANCE)
    accepted = "the class with the largest probability where `correct` is true, and only there"
    _refuse(_LABEL, labelled & disagrees, values, first_row, accepted)
    return correct


def _confidences(
    batch: Any, matrix: Floats | None, predicted: NDArray[np.intp] | None, first_row: int
) -> Values:
    largest = np.zeros(0)
    if matrix is not None and predicted is not None:
        largest = monitored_probabilities(matrix, "top_label")
        if matrix.shape[1] == 2:  # of P(y = 1) alone, so that one column and two give the same
            positive = monitored_probabilities(matrix, "positive_class")
            largest = values_of_predicted_class(positive, predicted, "positive_class")
    if "confidence" not in batch.schema.names:
        return largest
    confidence = numbers_of(batch, "confidence")
    outside = ~((confidence >= 0) & (confidence <= 1))
    _refuse("confidence", outside, confidence, first_row, "a number in [0, 1]")
    if matrix is None:
        return confidence
    check_largest_probabilities(confidence, matrix, first_row)
    return largest if matrix.shape[1] == 2 else confidence


def _delays(
    batch: Any, time: Values, labelled: NDArray[np.bool_], first_row: int, outcome: str
) -> Values:
    """Return the delay of each label, 0 without `label_time`; `outcome` names its column."""
    if "label_time" not in batch.schema.names:
        return np.where(labelled, 0.0, np.nan)
    label_time = numbers_of(batch, "label_time")
    has_label = ~np.isnan(label_time)
    accepted = f"{_SECONDS}; null without a label"
    too_large = has_label & ~(np.abs(label_time) <= LATEST)
    _refuse("label_time", too_large, label_time, first_row, accepted)
    _refuse(
        "label_time",
        has_label & ~labelled,
        label_time,
        first_row,
        f"null, since `{outcome}` is null",
    )
    delay = np.where(has_label, label_time - time, 0.0)
    early = has_label & (delay < -_SKEW_SECONDS)
    accepted = "a time that is not before the prediction's"
    _refuse("label_time", early, label_time, first_row, accepted)
    return np.where(labelled, np.maximum(delay, 0.0), np.nan)


def numbers_of(batch: Any, name: str) -> Values:
    """Return a column as float64, NaN where it is null."""
    column = batch.column(name)
    if pa.types.is_date(column.type):
        column = pc.cast(column, pa.timestamp("ms"))
    if pa.types.is_timestamp(column.type):
        # A cast to another unit would overflow for distant dates or refuse to round.
        ticks, unit = pc.cast(column, pa.int64()), _TICKS[column.type.unit]
        seconds = pc.divide(ticks, unit)
        # Nanoseconds since 1970 have more digits than float64.
        return _plain(seconds) + _plain(pc.subtract(ticks, pc.multiply(seconds, unit))) / unit
    return _plain(column)


def _plain(column: Any) -> Values:
    if pa.types.is_null(column.type) or pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    column = pc.cast(column, pa.float64(), safe=False)
    return pc.fill_null(column, float("nan")).to_numpy(zero_copy_only=False)


def _segments(batch: Any) -> NDArray[np.object_] | None:
    """Return the names, or None without the column; null becomes an empty name."""
    if "segment" not in batch.schema.names:
        return None
    names: NDArray[np.object_] = _text(batch, "segment").to_numpy(zero_copy_only=False)
    return names.astype(object)


def _groups(batch: Any) -> NDArray[np.int64] | None:
    """Return the numbers of the groups, 0 for null, or None without the column."""
    if "group" not in batch.schema.names:
        return None
    encoded = pc.dictionary_encode(_text(batch, "group"))
    numbers = np.array([group_number(name) for name in encoded.dictionary.to_pylist()], np.int64)
    return numbers[encoded.indices.to_numpy(zero_copy_only=False)]


def _text(batch: Any, name: str) -> Any:
    """Return a column as text, empty where it is null."""
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.fill_null(pc.cast(column, pa.string()), "")


def _refuse(
    name: str, invalid: NDArray[np.bool_], values: Values, first_row: int, accepted: str
) -> None:
    refuse_first(invalid, values, name, accepted, first_row, number_text)
