"""Columns of Arrow tables to arrays: what Parquet, Arrow and CSV share.

The logits are one column of lists of constant length, or one column a class. A null is an
error wherever it stands: a masked class is written −inf, and a missing number is no number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recalib.errors import InputError
from recalib.files.base import Input, Numbers
from recalib.files.column_names import Names, column_names
from recalib.files.limits import check_column_count
from recalib.lazy_import import LazyModule

__all__ = ["Columns"]

pa = LazyModule("pyarrow")


class Columns:
    """Which columns of a schema hold the logits and the labels, and what they are.

    `classes` is None for lists whose length only their rows tell.
    """

    def __init__(self, schema: Any, declared: Input) -> None:
        self._declared = declared
        check_column_count(len(schema))
        self.names: Names = column_names(schema.names, declared)
        self.classes: int | None
        if self.names.values is None:
            self.classes = len(self.names.columns)
            types = [_numeric(schema.field(n).type, n) for n in self.names.columns]
            found = np.result_type(*types)
        else:
            self.classes, found = _list_type(schema.field(self.names.values).type, declared)
        self.dtype = found if found.kind == "f" else np.dtype(np.float64)
        if self.names.labels is not None:
            _numeric(schema.field(self.names.labels).type, "labels")

    @property
    def names_to_read(self) -> list[str]:
        """The columns to read."""
        values = self.names.columns if self.names.values is None else (self.names.values,)
        return [*values, *([] if self.names.labels is None else [self.names.labels])]

    def arrays(self, batch: Any, first_row: int) -> tuple[Numbers, Numbers | None]:
        """Return the logits and labels of a record batch, views of its memory where possible.

        Raises
        ------
        InputError: a null, or lists of different lengths; rows count from `first_row`.
        """
        batch = batch.select(self.names_to_read)
        # Offsets and lengths in a batch are as hostile as the rest of the file.
        batch.validate(full=True)
        labels = None
        if self.names.labels is not None:
            labels = _flat(batch.column(self.names.labels), "labels", first_row)
        if self.names.values is not None:
            return self._lists(batch.column(self.names.values), first_row), labels
        logits = np.empty((batch.num_rows, len(self.names.columns)), self.dtype)
        for k, name in enumerate(self.names.columns):
            logits[:, k] = _flat(batch.column(name), self._declared, first_row, k)
        return logits, labels

    def _lists(self, lists: Any, first_row: int) -> Numbers:
        lists = _storage(lists)
        _refuse_nulls(lists, lambda row: f"{self._declared}[{first_row + row}]")
        if self.classes is None:
            self.classes = len(lists[0]) if len(lists) else None
        classes = self.classes or 1
        if not pa.types.is_fixed_size_list(lists.type):
            lengths = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
            self._refuse_ragged(lengths, first_row)
        values = lists.flatten()
        _refuse_nulls(
            values, lambda i: f"{self._declared}[{first_row + i // classes}][{i % classes}]"
        )
        flat: Numbers = values.to_numpy(zero_copy_only=False)
        return flat.reshape(len(lists), -1)

    def _refuse_ragged(self, lengths: Numbers, first_row: int) -> None:
        ragged = lengths != self.classes
        if ragged.any():
            row = int(np.argmax(ragged))
            raise InputError(
                f"{self._declared}[{first_row + row}]",
                found=f"{lengths[row]} classes",
                accepted=f"{self.classes}, as in the first row",
            )


def _list_type(kind: Any, field: str) -> tuple[int | None, np.dtype[Any]]:
    if isinstance(kind, pa.BaseExtensionType):  # a fixed-shape tensor, for one
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size, _numeric(kind.value_type, field)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return None, _numeric(kind.value_type, field)
    raise InputError(
        field, found=f"a column of type {kind!s:.60}", accepted="a column of lists of numbers"
    )


def _numeric(kind: Any, field: str) -> np.dtype[Any]:
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InputError(
            field, found=f"a column of type {kind!s:.60}", accepted="floats or integers"
        )
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _storage(array: Any) -> Any:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _flat(column: Any, field: str, first_row: int, k: int | None = None) -> Numbers:
    where = "" if k is None else f"[{k}]"
    _refuse_nulls(column, lambda row: f"{field}[{first_row + row}]{where}")
    values: Numbers = column.to_numpy(zero_copy_only=False)
    return values


def _refuse_nulls(array: Any, place: Any) -> None:
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(
            place(index), found="null (nothing)", accepted="a number (-inf for a masked class)"
        )
