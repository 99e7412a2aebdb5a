"""Divide the rows of a log into groups by the values of one column.

The groups depend on the values only, never on labels. Texts, booleans and integers with few
different values make a group for each value; other numbers and times make groups at quantiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.replay.columns import numbers_of

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

Values = NDArray[np.float64]
Groups = NDArray[np.intp]

#: Largest number of groups of a column, and of quantile groups.
_MAX_GROUPS, _QUANTILES = 200, 20
#: An integer column with more different values has quantile groups.
_MAX_INTEGERS = 20
#: A text column with more different values is taken for an id.
_MAX_TEXTS = 10_000
#: Quantiles are those of about this number of rows.
_SAMPLE = 100_000
_NULL, _OTHER = "null", "other values"
_TYPES = "a column of text, booleans, integers, floats, timestamps or dates"


class Split(ABC):
    """A split of rows into groups: read all values first, then ask for the groups."""

    def __init__(self, column: str) -> None:
        self.column = column

    @abstractmethod
    def read(self, batch: Any) -> None:
        """Read the values of a batch of rows, labelled or not."""

    @abstractmethod
    def groups(self, batch: Any) -> Groups:
        """Return the group of each row of a batch, (N,)."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the groups."""


class _ValueSplit(Split):
    """A group for each of the most frequent values, one for all others, one for null."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self._counts: Counter[str] = Counter()
        self._index: dict[str, int] | None = None

    def read(self, batch: Any) -> None:
        for pair in pc.value_counts(_texts(batch.column(self.column))).to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        if len(self._counts) > _MAX_TEXTS:
            found = f"more than {_MAX_TEXTS:,} different values, like an id"
            raise InputError(
                self.column, found=found, accepted=f"at most {_MAX_TEXTS:,} different values"
            )

    def groups(self, batch: Any) -> Groups:
        index = self._positions()
        encoded = pc.dictionary_encode(_texts(batch.column(self.column)))
        other = len(index)
        positions = [index.get(text, other) for text in encoded.dictionary.to_pylist()]
        return np.array(positions, np.intp)[encoded.indices.to_numpy()]

    @property
    def names(self) -> list[str]:
        return [*self._positions(), _OTHER]

    def _positions(self) -> dict[str, int]:
        if self._index is None:
            # The order is that of counts and then of names: it does not depend on that of rows.
            ordered = sorted(self._counts, key=lambda text: (-self._counts[text], text))
            self._index = {text: number for number, text in enumerate(ordered[:_MAX_GROUPS])}
        return self._index


class _QuantileSplit(Split):
    """Groups of about equally many rows, and one for null."""

    def __init__(self, column: str, rows: int, *, is_time: bool) -> None:
        super().__init__(column)
        self._every = max(1, rows // _SAMPLE)
        self._is_time = is_time
        self._passed = 0
        self._sample: list[Values] = []
        self._edges: Values | None = None

    def read(self, batch: Any) -> None:
        values = numbers_of(batch, self.column)
        self._sample.append(values[-self._passed % self._every :: self._every])
        self._passed += len(values)

    def groups(self, batch: Any) -> Groups:
        values, edges = numbers_of(batch, self.column), self._quantiles()
        groups = np.searchsorted(edges, values, side="right")
        return np.where(np.isnan(values), len(edges) + 1, groups)

    @property
    def names(self) -> list[str]:
        texts = [self._text(edge) for edge in self._quantiles()]
        if not texts:
            return ["any value", _NULL]
        between = [f"{low} to below {high}" for low, high in pairwise(texts)]
        return [f"below {texts[0]}", *between, f"{texts[-1]} or more", _NULL]

    def _text(self, edge: float) -> str:
        if self._is_time:
            with suppress(ValueError, OverflowError, OSError):  # a year that is not 1 to 9999
                return datetime.fromtimestamp(edge, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"{edge:.6g}"

    def _quantiles(self) -> Values:
        if self._edges is None:
            values = np.concatenate([np.zeros(0), *self._sample])
            values = values[~np.isnan(values)]
            shares = np.arange(1, _QUANTILES) / _QUANTILES
            inner = np.quantile(values, shares, method="higher") if len(values) else values
            # An edge at the smallest value would leave the first group empty.
            self._edges = np.unique(inner[inner > values.min()]) if len(values) else values
            self._sample = []
        return self._edges


class _IntegerSplit(Split):
    """A group for each value if there are few, quantile groups otherwise."""

    def __init__(self, column: str, rows: int) -> None:
        super().__init__(column)
        self._by_value = _ValueSplit(column)
        self._by_quantile = _QuantileSplit(column, rows, is_time=False)
        self._values: set[float] = set()

    def read(self, batch: Any) -> None:
        self._by_quantile.read(batch)
        if len(self._values) <= _MAX_INTEGERS:
            self._values.update(np.unique(numbers_of(batch, self.column)).tolist())
            self._by_value.read(batch)

    def groups(self, batch: Any) -> Groups:
        return self._split.groups(batch)

    @property
    def names(self) -> list[str]:
        return self._split.names

    @property
    def _split(self) -> Split:
        return self._by_value if len(self._values) <= _MAX_INTEGERS else self._by_quantile


def split_of(field: Any, rows: int) -> Split:
    """Return the split of a column of a log.

    Parameters
    ----------
    field: name and type of the column (`pyarrow.Field`).
    rows: number of rows of the log.

    Raises
    ------
    InputError: a type without groups, such as lists.
    """
    types, kind = pa.types, field.type
    if types.is_dictionary(kind):
        kind = kind.value_type
        if types.is_integer(kind):
            return _ValueSplit(field.name)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind):
        return _ValueSplit(field.name)
    if types.is_integer(kind):
        return _IntegerSplit(field.name, rows)
    is_time = types.is_timestamp(kind) or types.is_date(kind)
    if is_time or types.is_floating(kind):
        return _QuantileSplit(field.name, rows, is_time=is_time)
    raise InputError(field.name, found=f"a column of type {field.type!s:.60}", accepted=_TYPES)


def _texts(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.fill_null(pc.cast(column, pa.string()), _NULL)
