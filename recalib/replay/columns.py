"""Convert the columns of a log to checked arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.lazy_import import LazyModule
from recalib.replay.probabilities import check_confidences, is_lists, matrix_of

__all__ = ["COLUMNS", "Rows", "check_schema", "rows_of", "times_of"]

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

Values = NDArray[np.float64]

_REQUIRED = ("time", "confidence", "correct")
_OPTIONAL = ("label_time", "segment", "probabilities")
#: All columns that are read.
COLUMNS = (*_REQUIRED, *_OPTIONAL)
#: Tolerance for clocks: a label may not be earlier than its prediction by more.
_SKEW_SECONDS = 300.0
#: The end of the year 9999. Milliseconds since 1970 exceed it, so they are not taken for seconds.
_LATEST = 253_402_300_799.0
_SECONDS = "a finite number of seconds, up to the year 9999; a timestamp for any other unit"
_TICKS = {"s": 1e0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True, eq=False)
class Rows:
    """Predictions (N,), in any order."""

    #: Prediction times in seconds.
    time: Values
    confidence: Values
    #: 1 or 0, NaN without a label.
    correct: Values
    #: Seconds from prediction to label, at least 0; NaN without a label, 0 without `label_time`.
    delay: Values
    #: Names, or None without the column.
    segment: NDArray[np.object_] | None

    def select(self, index: NDArray[Any]) -> Rows:
        """Return the rows of an index or a mask."""
        segment = None if self.segment is None else self.segment[index]
        time, confidence = self.time[index], self.confidence[index]
        return Rows(time, confidence, self.correct[index], self.delay[index], segment)

    @staticmethod
    def concatenate(parts: list[Rows]) -> Rows:
        """Return the rows of all parts."""
        segments = [part.segment for part in parts if part.segment is not None]

        def joined(columns: list[Values]) -> Values:
            return np.concatenate([np.zeros(0), *columns])

        return Rows(
            joined([part.time for part in parts]),
            joined([part.confidence for part in parts]),
            joined([part.correct for part in parts]),
            joined([part.delay for part in parts]),
            np.concatenate(segments) if segments else None,
        )


def check_schema(schema: Any) -> list[str]:
    """Return the columns to read.

    With `probabilities`, `confidence` is optional: it is the largest probability.

    Raises
    ------
    InputError: a column is missing, occurs twice, or has a wrong type.
    """
    for name in _REQUIRED:
        derived = name == "confidence" and "probabilities" in schema.names
        if name not in schema.names and not derived:
            accepted = f"columns {', '.join(_REQUIRED)}, and {', '.join(_OPTIONAL)} where known"
            found = ", ".join(map(repr, schema.names[:20])) or "no columns"
            raise InputError(name, found=found, accepted=accepted)
    names = [name for name in COLUMNS if name in schema.names]
    for name in names:
        if schema.names.count(name) > 1:
            raise InputError(name, found="several columns of that name", accepted="one")
        kind = schema.field(name).type
        if not _legal(name, kind):
            raise InputError(name, found=f"a column of type {kind!s:.60}", accepted=_TYPES[name])
    return names


_TYPES = {
    "time": "seconds as numbers, or timestamps",
    "confidence": "floats",
    "correct": "booleans, null where there is no label (or 1 and 0)",
    "label_time": "seconds as numbers, or timestamps; null where there is no label",
    "segment": "text, integers or booleans",
    "probabilities": "lists of floats, one for each class",
}


def _legal(name: str, kind: Any) -> bool:
    types = pa.types
    if name == "probabilities":
        return is_lists(kind)
    if pa.types.is_null(kind):  # a column of nulls only
        return name in ("correct", *_OPTIONAL)
    number = types.is_floating(kind) or types.is_integer(kind)
    if name in ("time", "label_time"):
        return bool(number or types.is_timestamp(kind))
    if name == "confidence":
        return bool(types.is_floating(kind) or types.is_integer(kind))
    if name == "correct":
        return bool(number or types.is_boolean(kind))
    if types.is_dictionary(kind):
        kind = kind.value_type
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_integer(kind) or types.is_boolean(kind))


def times_of(batch: Any) -> Values:
    """Return the prediction times of a batch (N,), in seconds, not checked."""
    return _numbers(batch, "time")


def rows_of(batch: Any, first_row: int, classes: int | None = None) -> Rows:
    """Return the rows of a batch, checked; errors count rows from `first_row`.

    Parameters
    ----------
    classes: required number of `probabilities` per row.

    Raises
    ------
    InputError: a time or a confidence is null, not finite or out of range; `correct` is neither 1
        nor 0; a label is earlier than its prediction, or has a time but no value; probabilities
        are not valid, or do not agree with the confidence.
    """
    names = batch.schema.names
    time = _numbers(batch, "time")
    # `~(<=)` also rejects NaN.
    _refuse("time", ~(np.abs(time) <= _LATEST), time, first_row, _SECONDS)
    confidence = _confidences(batch, first_row, classes)
    correct = _numbers(batch, "correct")
    labelled = ~np.isnan(correct)
    neither = labelled & (correct != 0) & (correct != 1)
    _refuse("correct", neither, correct, first_row, "true or false, null without a label")
    delay = np.where(labelled, 0.0, np.nan)
    if "label_time" in names:
        delay = _delays(_numbers(batch, "label_time"), time, labelled, first_row)
    segment = _segments(batch.column("segment")) if "segment" in names else None
    return Rows(time, confidence, correct, delay, segment)


def _confidences(batch: Any, first_row: int, classes: int | None) -> Values:
    names = batch.schema.names
    if "probabilities" in names:
        matrix = matrix_of(batch.column("probabilities"), first_row, classes)
        if "confidence" not in names:
            largest: Values = matrix.max(axis=1).astype(np.float64)
            return largest
    confidence = _numbers(batch, "confidence")
    outside = ~((confidence >= 0) & (confidence <= 1))
    _refuse("confidence", outside, confidence, first_row, "a number in [0, 1]")
    if "probabilities" in names:
        check_confidences(confidence, matrix, first_row)
    return confidence


def _delays(
    label_time: Values, time: Values, labelled: NDArray[np.bool_], first_row: int
) -> Values:
    has_label = ~np.isnan(label_time)
    accepted = f"{_SECONDS}; null without a label"
    too_large = has_label & ~(np.abs(label_time) <= _LATEST)
    _refuse("label_time", too_large, label_time, first_row, accepted)
    _refuse(
        "label_time", has_label & ~labelled, label_time, first_row, "null, since `correct` is null"
    )
    delay = np.where(has_label, label_time - time, 0.0)
    early = has_label & (delay < -_SKEW_SECONDS)
    accepted = "a time that is not before the prediction's"
    _refuse("label_time", early, label_time, first_row, accepted)
    return np.where(labelled, np.maximum(delay, 0.0), np.nan)


def _numbers(batch: Any, name: str) -> Values:
    """Return a column as float64, NaN where it is null."""
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        # A cast to another unit would overflow for distant dates or refuse to round.
        return _plain(pc.cast(column, pa.int64())) / _TICKS[column.type.unit]
    return _plain(column)


def _plain(column: Any) -> Values:
    if pa.types.is_null(column.type) or pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    column = pc.cast(column, pa.float64(), safe=False)
    values: Values = pc.fill_null(column, float("nan")).to_numpy(zero_copy_only=False)
    return values


def _segments(column: Any) -> NDArray[np.object_]:
    """Return the names; null becomes an empty name."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    text = pc.fill_null(pc.cast(column, pa.string()), "")
    names: NDArray[np.object_] = text.to_numpy(zero_copy_only=False).astype(object)
    return names


def _refuse(
    name: str, invalid: NDArray[np.bool_], values: Values, first_row: int, accepted: str
) -> None:
    if invalid.any():
        row = int(np.argmax(invalid))
        value = values[row]
        found = "null or NaN" if np.isnan(value) else f"{value:g}"
        raise InputError(f"{name}[{first_row + row}]", found=found, accepted=accepted)
