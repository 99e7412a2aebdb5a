"""The columns of a log: the forms in which files have them, and the form that is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from recalib.core.lazy_import import LazyModule
from recalib.errors import ColumnsError, InputError
from recalib.files.column_names import class_columns, column_names
from recalib.files.tables import class_number, numbers_by_name
from recalib.replay.columns import COLUMNS, MULTILABEL_COLUMNS
from recalib.replay.times import cast_texts, decoded, is_text, seconds_of

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

_TIMES = ("time", "label_time")
_TIMESTAMP: Final = "timestamp"
_PROBABILITIES: Final = "probabilities"
#: Columns whose texts are numbers, as all are in CSV, and what these are.
_NUMBERS = {
    "confidence": "a number in [0, 1]",
    "correct": "true or false, or 1 or 0; nothing without a label",
    _PROBABILITIES: "a number in [0, 1]",
}


class LogSchema:
    """The columns of one file of a log.

    `time` may be called `timestamp`. `probabilities` may be one column for each class, with the
    names of the classes or numbered (`probability_0`, `probability_1`, ...), or one column
    `probability` of class 1 of 2. Times have the forms of `seconds_of`. Labels may be names of
    classes. Other texts are numbers.

    Parameters
    ----------
    schema: of the file.
    check: returns the columns to read of a schema of a log, or raises `InputError`.
    class_names: names of the classes in their order, if they are known.
    times: the forms of times by column; `convert` adds those of its rows, and rejects others.
    """

    def __init__(
        self,
        schema: Any,
        check: Callable[[Any], list[str]],
        class_names: Sequence[str] | None,
        times: dict[str, str],
    ) -> None:
        self._time = "time" if "time" in schema.names else _TIMESTAMP
        self._scores = _score_columns(schema.names, class_names)
        self._numbers = numbers_by_name(class_names or ())
        self._times = times
        if self._time in schema.names and self._time != "time":
            schema = schema.append(pa.field("time", schema.field(_TIMESTAMP).type))
        if _PROBABILITIES in schema.names and is_text(schema.field(_PROBABILITIES).type):
            position = schema.names.index(_PROBABILITIES)
            schema = schema.set(position, pa.field(_PROBABILITIES, pa.float64()))
        if self._scores:
            kind = pa.list_(pa.float64(), len(self._scores))
            schema = schema.append(pa.field(_PROBABILITIES, kind))
        #: With the columns of a log and all others, and the names of those that are read.
        self.schema, self.names = schema, check(schema)

    def sources(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the file that the columns `names` are made of."""
        groups = {"time": [self._time]}
        if self._scores:
            groups[_PROBABILITIES] = [*self._scores]
        return [*dict.fromkeys(source for name in names for source in groups.get(name, [name]))]

    def convert(self, batch: Any, names: Sequence[str], first_row: int) -> Any:
        """Return a batch of the columns `names`, from one of their sources.

        Raises
        ------
        InputError: a text has no such value, or a time has another form than before; errors count
            rows from `first_row`.
        """
        columns = [self._column(batch, name, first_row) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _column(self, batch: Any, name: str, first_row: int) -> Any:
        if name == _PROBABILITIES and self._scores:
            return self._probabilities(batch, first_row)
        column = batch.column(self._time if name == "time" else name)
        if name in _TIMES:
            return self._seconds(column, name, first_row)
        if name == "label" and is_text(column.type):
            return self._class_indices(decoded(column), first_row)
        return _numbers_of(column, name, name, first_row)

    def _seconds(self, column: Any, name: str, first_row: int) -> Any:
        seconds, form = seconds_of(column, name, first_row)
        if form is not None and self._times.setdefault(name, form) != form:
            accepted = f"{self._times[name]}, as in the rows before"
            raise InputError(f"{name}[{first_row}]", found=form, accepted=accepted)
        return seconds

    def _probabilities(self, batch: Any, first_row: int) -> Any:
        """Return a list for each row; a null becomes NaN, which is no probability."""
        values = np.empty((batch.num_rows, len(self._scores)))
        for k, name in enumerate(self._scores):
            column = _numbers_of(batch.column(name), _PROBABILITIES, name, first_row)
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                found = f"a column of type {column.type!s:.60}"
                raise InputError(name, found=found, accepted="floats")
            values[:, k] = column.to_numpy(zero_copy_only=False)
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), len(self._scores))

    def _class_indices(self, labels: Any, first_row: int) -> Any:
        """Return the index of each class, by its name or its number."""
        encoded = pc.dictionary_encode(labels)
        indices = []
        for text in encoded.dictionary.to_pylist():
            index = class_number(text, self._numbers)
            if index is None:
                row = pc.index(labels, text).as_py()
                accepted = f"the index of a class, or its name ({', '.join([*self._numbers][:8])})"
                if not self._numbers:
                    accepted = "the index of a class; its name with `class_names` or `calibrator`"
                found = f"{text!r:.60}"
                raise InputError(f"label[{first_row + row}]", found=found, accepted=accepted)
            indices.append(index)
        return pc.take(pa.array(indices, pa.int64()), encoded.indices)


def is_log_column(name: str) -> bool:
    """Return whether a name is one that a column of a log may have."""
    return name in (*COLUMNS, *MULTILABEL_COLUMNS, "label", _TIMESTAMP) or _is_score(name)


def _is_score(name: str) -> bool:
    return name.lower().startswith("prob")


def _score_columns(names: Sequence[str], class_names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of probabilities; none if there is one of lists, or no such column."""
    if _PROBABILITIES in names:
        return ()
    if named := class_columns(names, _PROBABILITIES, class_names):
        return tuple(named)
    # A log has other numbered columns, such as features.
    numbered = [name for name in names if _is_score(name) and name[-1].isdigit()]
    for candidates in (numbered, [name for name in names if name == "probability"]):
        try:
            return column_names(candidates, _PROBABILITIES).columns
        except ColumnsError:
            pass
    return ()


def _numbers_of(column: Any, kind: str, name: str, first_row: int) -> Any:
    """Return a column of numbers instead of texts; one of another kind is returned as it is."""
    if kind not in _NUMBERS or not is_text(column.type):
        return column
    texts = decoded(column)
    if kind == "correct":
        lower = pc.utf8_lower(texts)
        for word, number in (("true", "1"), ("false", "0")):
            lower = pc.if_else(pc.equal(lower, word), number, lower)
        texts = lower
    texts = pc.replace_substring(texts, ",", ".")  # numbers of at most 1 have no thousands
    return cast_texts(texts, pa.float64(), name, first_row, _NUMBERS[kind])
