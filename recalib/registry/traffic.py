"""Queries of the table `traffic`: predictions and sums of confidences by time, segment and bin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.records import Model

__all__ = ["Traffic", "TrafficCount", "merge_counts"]

_TABLE = tables.traffic
_KEY = ["model_id", "version", "started_at", "segment", "bin"]
_TOTALS = ["predictions", "confidence_count", "confidence_sum"]
_COLUMNS = [*_KEY, *_TOTALS]


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
    def key(self) -> tuple[int, int, int, int, int]:
        """Model, version, time bucket, segment and bin."""
        return self.model_id, self.version, self.started_at, self.segment, self.bin


def merge_counts(counts: Iterable[TrafficCount]) -> list[TrafficCount]:
    """Return one count for each key."""
    totals: dict[tuple[int, ...], TrafficCount] = {}
    for count in counts:
        before = totals.get(count.key)
        if before is not None:
            count = TrafficCount(
                *count.key,
                count.predictions + before.predictions,
                count.confidence_count + before.confidence_count,
                count.confidence_sum + before.confidence_sum,
            )
        totals[count.key] = count
    return list(totals.values())


class Traffic(Queries):
    """Counts; all server processes add to them."""

    def add(self, counts: Iterable[TrafficCount]) -> None:
        """Add to the stored counts; each key may occur once.

        The rows are sorted so that processes that add to the same buckets cannot deadlock.
        """
        rows = sorted(counts)
        if not rows:
            return
        if self._connection.dialect.name == "sqlite":
            values = [row._asdict() for row in rows]
            self._connection.execute(_add_on_conflict(sqlite.insert(_TABLE)), values)
            return
        # One array per column instead of thousands of parameters.
        types = {name: ARRAY(_TABLE.c[name].type) for name in _COLUMNS}
        arrays = select(*(func.unnest(bindparam(name, type_=types[name])) for name in types))
        statement = postgresql.insert(_TABLE).from_select(_COLUMNS, arrays)
        columns = zip(*rows, strict=True)
        arrays_by_name = {
            name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)
        }
        self._connection.execute(_add_on_conflict(statement), arrays_by_name)

    def between(self, model: Model, version: int, start: float, end: float) -> list[TrafficCount]:
        """Return the counts of buckets that start from `start` until before `end`, by time."""
        rows = self._connection.execute(
            select(*(_TABLE.c[name] for name in _COLUMNS))
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.started_at >= start,
                _TABLE.c.started_at < end,
            )
            .order_by(*(_TABLE.c[name] for name in _KEY))
        )
        return [TrafficCount(*row) for row in rows]

    def first(self, model: Model, version: int, since: float) -> int | None:
        """Return the start of the first bucket from `since` on, or None."""
        started_at: int | None = self._connection.scalar(
            select(_TABLE.c.started_at)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.started_at >= since,
            )
            .order_by(_TABLE.c.started_at)
            .limit(1)
        )
        return started_at

    def compact(self, model: Model, version: int, before: float, seconds: int) -> int:
        """Merge buckets from before `before` into buckets of `seconds`; return the merged rows.

        If a process adds to an old bucket meanwhile, the bucket is merged at the next call.
        """
        where = (
            _TABLE.c.model_id == model.id,
            _TABLE.c.version == version,
            _TABLE.c.started_at < before - before % seconds,
            _TABLE.c.started_at % seconds != 0,
        )
        removed = self._connection.execute(
            delete(_TABLE).where(*where).returning(*(_TABLE.c[name] for name in _COLUMNS))
        ).all()
        counts = map(TrafficCount._make, removed)
        self.add(
            merge_counts(
                count._replace(started_at=count.started_at - count.started_at % seconds)
                for count in counts
            )
        )
        return len(removed)

    def delete(self, model: Model, version: int, before: float) -> int:
        """Delete buckets that started before `before`; return the number of rows."""
        result = self._connection.execute(
            delete(_TABLE).where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.started_at < before,
            )
        )
        return int(result.rowcount)


def _add_on_conflict(statement: Any) -> Any:
    totals = {name: _TABLE.c[name] + statement.excluded[name] for name in _TOTALS}
    return statement.on_conflict_do_update(index_elements=_KEY, set_=totals)
