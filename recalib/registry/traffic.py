"""Queries of the table of how many predictions were made, by time and by confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.records import Model

__all__ = ["Traffic", "TrafficCount"]

_TABLE = tables.traffic
_KEY = ["model_id", "version", "started_at", "segment", "bin"]
_COLUMNS = [*_KEY, "predictions"]


class TrafficCount(NamedTuple):
    """Predictions of one version, in one bucket of time, of one segment and one bin."""

    model_id: int
    version: int
    #: Of the bucket, in seconds since 1970.
    started_at: int
    segment: int
    bin: int
    predictions: int


class Traffic(Queries):
    """Counts that add up, whichever process brings them."""

    def add(self, counted: Iterable[TrafficCount]) -> None:
        """Add counts to those that are there; each bin of a bucket comes at most once.

        Sorted, so that processes that count the same buckets do not wait for each other in a
        circle.
        """
        rows = sorted(counted)
        if not rows:
            return
        if self._connection.dialect.name == "sqlite":
            values = [one._asdict() for one in rows]
            self._connection.execute(_adding(sqlite.insert(_TABLE)), values)
            return
        # An array a column is one parameter, where rows of values are thousands.
        types = {name: ARRAY(_TABLE.c[name].type) for name in _COLUMNS}
        arrays = select(*(func.unnest(bindparam(name, type_=types[name])) for name in types))
        statement = postgresql.insert(_TABLE).from_select(_COLUMNS, arrays)
        columns = zip(*rows, strict=True)
        given = {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}
        self._connection.execute(_adding(statement), given)

    def between(self, model: Model, version: int, start: float, end: float) -> list[TrafficCount]:
        """Return counts of buckets that began from `start` until before `end`, by time."""
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
        """Return when the first bucket from `since` on began, None without any."""
        found: int | None = self._connection.scalar(
            select(_TABLE.c.started_at)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.started_at >= since,
            )
            .order_by(_TABLE.c.started_at)
            .limit(1)
        )
        return found

    def compact(self, model: Model, version: int, before: float, seconds: int) -> int:
        """Put buckets that began before `before` into ones of `seconds`; return how many rows.

        Whoever adds to an old bucket meanwhile makes it anew; the next time takes it along.
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
        sums: Counter[TrafficCount] = Counter()
        for one in map(TrafficCount._make, removed):
            began = one.started_at - one.started_at % seconds
            sums[one._replace(started_at=began, predictions=0)] += one.predictions
        self.add(one._replace(predictions=total) for one, total in sums.items())
        return len(removed)

    def delete(self, model: Model, version: int, before: float) -> int:
        """Remove buckets that began before `before`; return how many rows."""
        result = self._connection.execute(
            delete(_TABLE).where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.started_at < before,
            )
        )
        return int(result.rowcount)


def _adding(statement: Any) -> Any:
    total = _TABLE.c.predictions + statement.excluded.predictions
    return statement.on_conflict_do_update(index_elements=_KEY, set_={"predictions": total})
