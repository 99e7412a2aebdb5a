"""Convert columns of Arrow tables to arrays: shared by Parquet, Arrow, CSV and JSON lines.

The logits are one column of lists of equal length, one column a class, or one column of numbers,
those of class 1 of 2. A null is always an error: a masked class is written as −inf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recalib.core.arrays import refuse_first
from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.files.base import MAX_CLASSES, Input, Layout, Numbers, Rows, Task
from recalib.files.column_names import Names
from recalib.files.limits import check_column_count

pa = LazyModule("pyarrow")

#: Of the widest number.
_LABEL_BYTES = 8
#: Texts of labels of two classes, besides 0 and 1.
_TWO_CLASSES = {"false": 0, "true": 1, "-1": -1, "-1.0": -1}


class Columns:
    """The columns of scores, labels and weights in a schema, with their types.

    `classes` is None for lists of variable length until a row has been read. Multilabel data has a
    column of lists `labels`, of K numbers or booleans. Other labels are numbers, truth values, or
    texts of these; where the names of the classes are known, also these names.
    """

    def __init__(
        self, schema: Any, names: Names, declared: Input, task: Task = "multiclass"
    ) -> None:
        self._declared = declared
        self._task = task
        check_column_count(len(schema))
        self.names = names
        if names.values is not None and _is_number(schema.field(names.values).type):
            self.names = replace(names, values=None, columns=(names.values,))
        self._class_numbers: dict[str, int] = {}
        self.classes: int | None
        if self.names.values is None:
            self.classes = len(self.names.columns)
            types = [_numeric_dtype(schema.field(n).type, n) for n in self.names.columns]
            dtype = np.result_type(*types)
        else:
            self.classes, dtype = _list_type(schema.field(self.names.values).type, declared)
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        if names.labels is not None:
            kind = schema.field(names.labels).type
            if task == "multilabel":
                _list_type(kind, "labels", allow_booleans=True)
            elif names.class_names and (_is_text(kind) or names.class_names == names.columns):
                is_columns = names.class_names == names.columns
                field = "scores" if is_columns else "class_names"
                self._class_numbers = numbers_by_name(names.class_names, field)
                if (count := len(names.class_names)) != max(2, self.classes or count):
                    found, accepted = f"{count} names", f"{max(2, self.classes or 0)}, one a class"
                    raise InputError("class_names", found=found, accepted=accepted)
            elif not _is_text(kind) and not pa.types.is_boolean(kind):
                _numeric_dtype(kind, "labels")
        if names.weights is not None:
            _numeric_dtype(schema.field(names.weights).type, "weights")

    @property
    def names_to_read(self) -> list[str]:
        """The names of the columns to read."""
        names = self.names
        every = (names.values, *names.columns, names.labels, names.weights)
        return [name for name in every if name is not None]

    @property
    def row_bytes(self) -> int:
        """The bytes of a row as arrays, at most; the K labels of multilabel data are counted."""
        label = _LABEL_BYTES if self._task == "multilabel" else 0
        return (self.classes or 1) * (self.dtype.itemsize + label)

    def layout(self, rows: int | None = None) -> Layout:
        """Return what a file of these columns declares, with the number of its rows if it does."""
        has_labels, has_weights = self.names.labels is not None, self.names.weights is not None
        return Layout(rows, self.classes or 0, self.dtype, has_labels, has_weights)

    def arrays(self, batch: Any, first_row: int) -> Rows:
        """Return the arrays of a record batch, as views of its memory if possible.

        Raises
        ------
        InputError: a null, or lists of different lengths; errors count rows from `first_row`.
        """
        batch = batch.select(self.names_to_read)
        # Offsets and lengths in a batch may be hostile.
        batch.validate(full=True)
        if self.names.values is not None:
            logits = self._lists(batch.column(self.names.values), self._declared, first_row)
        else:
            logits = np.empty((batch.num_rows, len(self.names.columns)), self.dtype)
            for k, name in enumerate(self.names.columns):
                logits[:, k] = self._numbers(batch.column(name), self._declared, first_row, k)
        labels, weights = self._labels(batch, first_row), self.names.weights
        if weights is None:
            return logits, labels, None
        return logits, labels, self._numbers(batch.column(weights), "weights", first_row)

    def _labels(self, batch: Any, first_row: int) -> Numbers | None:
        if self.names.labels is None:
            return None
        column = batch.column(self.names.labels)
        if self._task == "multilabel":
            return self._lists(column, "labels", first_row)
        if _is_text(column.type):
            return self._labels_of_texts(column, first_row)
        return self._numbers(column, "labels", first_row)

    def _lists(self, lists: Any, field: str, first_row: int) -> Numbers:
        lists = _storage(lists)
        _check_nulls(lists, lambda row: f"{field}[{first_row + row}]", "a list of numbers")
        if self.classes is None:
            self.classes = len(lists[0]) if len(lists) else None
        classes = self.classes or 1
        if not pa.types.is_fixed_size_list(lists.type):
            lengths = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
            self._check_lengths(lengths, field, first_row)
        values = lists.flatten()
        _check_nulls(
            values,
            lambda i: f"{field}[{first_row + i // classes}][{i % classes}]",
            self._accepted_values(field),
        )
        flat: Numbers = _plain(values).to_numpy(zero_copy_only=False)
        return flat.reshape(len(lists), -1)

    def _numbers(self, column: Any, field: str, first_row: int, k: int | None = None) -> Numbers:
        where = "" if k is None else f"[{k}]"
        _check_nulls(
            column, lambda row: f"{field}[{first_row + row}]{where}", self._accepted_values(field)
        )
        return _plain(column).to_numpy(zero_copy_only=False)

    def _labels_of_texts(self, column: Any, first_row: int) -> Numbers:
        """Return labels that are names of classes, numbers or truth values, as numbers."""
        names = self._class_numbers
        shown = ", ".join([*names][:8]) + (", ..." if len(names) > 8 else "")
        accepted = f"the name of a class ({shown}) or its number (0 to {len(names) - 1})"
        accepted = accepted if names else "class numbers, which are integers from 0"
        in_order = "; of names, --class-names (in Python class_names=) with all, in order: {}"
        _check_nulls(column, lambda row: f"labels[{first_row + row}]", accepted)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        encoded = column.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        numbers = [self._label_of_text(text.strip()) for text in texts]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if None in numbers:
            unknown = [k for k, number in enumerate(numbers) if number is None]
            row = int(np.flatnonzero(np.isin(codes, unknown))[0])
            found = f"{texts[codes[row]]!r:.60}"
            if not names:
                accepted += in_order.format(",".join(sorted(texts)[:8]))
            raise InputError(f"labels[{first_row + row}]", found=found, accepted=accepted)
        return np.array(numbers, np.float64)[codes]

    def _label_of_text(self, text: str) -> float | None:
        """Return the number of a label; whether it is that of a class is checked later."""
        number: float | None = class_number(text, self._class_numbers)
        if number is None and self.classes in (1, 2):
            number = _TWO_CLASSES.get(text.lower())
        if number is None and not self._class_numbers:
            try:
                number = float(text)
            except ValueError:
                return None
        return number

    def _accepted_values(self, field: str) -> str:
        """Return what a number of a field is."""
        is_multilabel = self._task == "multilabel"
        if field == "weights":
            return "a number of at least 0"
        if field == "labels":
            return "0 or 1" if is_multilabel else "a class number, an integer from 0"
        if field == "probabilities":
            return "a number between 0 and 1"
        return "a finite number" if is_multilabel else "a number (-inf for a masked class)"

    def _check_lengths(self, lengths: Numbers, field: str, first_row: int) -> None:
        ragged, accepted = lengths != self.classes, f"{self.classes}, as in the first row"
        found = ("{} labels" if field == "labels" else "{} classes").format
        refuse_first(ragged, lengths, field, accepted, first_row, found)


def numbers_by_name(names: Sequence[str], field: str = "scores") -> dict[str, int]:
    """Return the number of each class by name.

    Raises
    ------
    InputError: a name is the number of another class, so a label would have two meanings, or
        occurs twice.
    """
    numbers: dict[str, int] = {}
    for k, name in enumerate(names):
        if numbers.setdefault(name, k) != k:
            raise InputError(field, found=f"{name!r} twice", accepted="each name once")
        if _whole_number(name, len(names)) not in (None, k):
            accepted = (
                f"other names, or columns in the order of their numbers: labels 0 to "
                f"{len(names) - 1} are numbers of classes"
            )
            raise InputError(field, found=f"{name!r} as the name of class {k}", accepted=accepted)
    return numbers


def class_number(text: str, numbers: Mapping[str, int]) -> int | None:
    """Return the number of a class from its name or its number as a text; None for any other text.

    Parameters
    ----------
    numbers: of the classes by name; if it is empty, any number from 0 is that of a class.
    """
    number = numbers.get(text)
    return _whole_number(text, len(numbers) or MAX_CLASSES) if number is None else number


def _whole_number(text: str, classes: int) -> int | None:
    """Return the number of a class that is written as a whole number (`2`, `2.0`), else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() and 0 <= value < classes else None


def _list_type(
    kind: Any, field: str, *, allow_booleans: bool = False
) -> tuple[int | None, np.dtype[Any]]:
    if isinstance(kind, pa.BaseExtensionType):  # for example a fixed-shape tensor
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size, _numeric_dtype(kind.value_type, field, allow_booleans)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return None, _numeric_dtype(kind.value_type, field, allow_booleans)
    raise InputError(
        field, found=f"a column of type {kind!s:.60}", accepted="a column of lists of numbers"
    )


def _numeric_dtype(kind: Any, field: str, allow_booleans: bool = False) -> np.dtype[Any]:
    if not (_is_number(kind) or (allow_booleans and pa.types.is_boolean(kind))):
        if field != "labels":
            accepted = "floats or integers"
        elif allow_booleans:
            accepted = "a column of lists of 0 and 1, or of booleans"
        else:
            accepted = "a column of class numbers, which are integers from 0"
        raise InputError(field, found=f"a column of type {kind!s:.60}", accepted=accepted)
    if pa.types.is_decimal(kind):
        return np.dtype(np.float64)
    return np.dtype(kind.to_pandas_dtype())


def _is_number(kind: Any) -> bool:
    is_decimal = pa.types.is_decimal(kind)  # the numbers of warehouses
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal)


def _plain(numbers: Any) -> Any:
    """Return decimals as floats, other numbers unchanged."""
    return numbers.cast(pa.float64()) if pa.types.is_decimal(numbers.type) else numbers


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _storage(array: Any) -> Any:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _check_nulls(array: Any, place: Callable[[int], str], accepted: str) -> None:
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(place(index), found="null (nothing)", accepted=accepted)
