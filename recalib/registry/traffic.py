"""Queries of the tables `traffic` and `class_traffic`: predictions by time and part of traffic."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, Table, case, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from recalib.registry import monitoring_tables
from recalib.registry.array_parameters import unnest
from recalib.registry.base import Queries
from recalib.registry.records import Model

_Row = TypeVar("_Row", "TrafficCount", "ClassTrafficCount")


class TrafficCount(NamedTuple):
    """Predictions of one version, time bucket, segment and bin."""

    model_id: int
    version: int
    #: Start of the bucket, in seconds since 1970.
    started_at: int
    segment: int
    bin: int
    predictions: int
    #: The number of predictions whose confidences are in the sum; a server of an earlier version
    #: counts predictions without their confidences.
    confidence_count: int = 0
    confidence_sum: float = 0.0

    @property
    def key(self) -> tuple[int, ...]:
        """Model, version, time bucket, segment and bin."""
        return self[:5]


class ClassTrafficCount(NamedTuple):
    """Predictions of one version, time bucket and predicted class, which is watched."""

    model_id: int
    version: int
    #: Start of the bucket, in seconds since 1970.
    started_at: int
    predicted: int
    predictions: int
    #: Σ max(p, 1 − p) of the confidences p: the largest possible |Σ (correct − p)|.
    max_error_sum: float

    @property
    def key(self) -> tuple[int, ...]:
        """Model, version, time bucket and predicted class."""
        return self[:4]


def merge_counts(counts: Iterable[_Row]) -> list[_Row]:
    """Return one count for each key."""
    totals: dict[tuple[int, ...], _Row] = {}
    for count in counts:
        before = totals.get(count.key)
        totals[count.key] = count if before is None else _sum(before, count)
    return list(totals.values())


def _sum(first: _Row, second: _Row) -> _Row:
    """Return the sum of two counts with the same key."""
    return type(first)._make(
        [*first.key, *map(operator.add, first[len(first.key) :], second[len(first.key) :])]
    )


class _Counts(Queries, Generic[_Row]):
    """Counts; all server processes add to them."""

    _table: Table
    _row: type[_Row]

    def add(self, counts: Iterable[_Row]) -> None:
        """Add to the stored counts; each key may occur once.

        The rows are sorted so that processes that add to the same buckets cannot deadlock.
        """
        rows = sorted(counts)
        if not rows:
            return
        if self._connection.dialect.name == "sqlite":
            values = [row._asdict() for row in rows]
            self._connection.execute(self._add_on_conflict(sqlite.insert(self._table)), values)
            return
        columns = dict(zip(self._row._fields, zip(*rows, strict=True), strict=True))
        arrays, parameters = unnest(self._table, columns)
        statement = postgresql.insert(self._table).from_select(list(columns), arrays)
        self._connection.execute(self._add_on_conflict(statement), parameters)

    def between(self, model: Model, version: int, start: float, end: float) -> list[_Row]:
        """Return the counts of buckets that start from `start` until before `end`, by time."""
        rows = self._connection.execute(
            select(*self._columns)
            .where(
                *self._of(model, version),
                self._table.c.started_at >= start,
                self._table.c.started_at < end,
            )
            .order_by(*self._table.primary_key.columns)
        )
        return [self._row._make(row) for row in rows]

    def first(self, model: Model, version: int, since: float) -> int | None:
        """Return the start of the first bucket from `since` on, or None."""
        return self._connection.scalar(
            select(self._table.c.started_at)
            .where(*self._of(model, version), self._table.c.started_at >= since)
            .order_by(self._table.c.started_at)
            .limit(1)
        )

    def compact(self, model: Model, before: Mapping[int | None, float], seconds: int) -> int:
        """Merge old buckets into buckets of `seconds`; return the number of merged rows.

        If a process adds to an old bucket meanwhile, the bucket is merged at the next call.

        Parameters
        ----------
        before: which buckets are old, by version; None is all others.
        """
        whole = {version: time - time % seconds for version, time in before.items()}
        removed = self._connection.execute(
            delete(self._table)
            .where(*self._old(model, whole), self._table.c.started_at % seconds != 0)
            .returning(*self._columns)
        ).all()
        counts = map(self._row._make, removed)
        self.add(
            merge_counts(
                count._replace(started_at=count.started_at - count.started_at % seconds)
                for count in counts
            )
        )
        return len(removed)

    def delete(self, model: Model, before: Mapping[int | None, float]) -> int:
        """Delete old buckets, as in `compact`; return the number of rows."""
        result = self._connection.execute(delete(self._table).where(*self._old(model, before)))
        return int(result.rowcount)

    @property
    def _columns(self) -> list[Column[Any]]:
        return [self._table.c[name] for name in self._row._fields]

    def _old(
        self, model: Model, before: Mapping[int | None, float]
    ) -> tuple[ColumnElement[bool], ...]:
        rest, times = before[None], {k: v for k, v in before.items() if k is not None}
        limit = case(times, value=self._table.c.version, else_=rest) if times else rest
        return self._table.c.model_id == model.id, self._table.c.started_at < limit

    def _of(self, model: Model, version: int) -> tuple[ColumnElement[bool], ...]:
        return self._table.c.model_id == model.id, self._table.c.version == version

    def _add_on_conflict(self, statement: Any) -> Any:
        key = self._table.primary_key.columns.keys()
        totals = {
            column.name: column + statement.excluded[column.name]
            for column in self._columns
            if column.name not in key
        }
        return statement.on_conflict_do_update(index_elements=key, set_=totals)


class Traffic(_Counts[TrafficCount]):
    """Counts by segment and bin."""

    _table, _row = monitoring_tables.traffic, TrafficCount


class TrafficByClass(_Counts[ClassTrafficCount]):
    """Counts by predicted class."""

    _table, _row = monitoring_tables.class_traffic, ClassTrafficCount
