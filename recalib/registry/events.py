"""Queries of the tables `events` and `event_sequence`: what has changed, for consumers that follow.

An event is written in the transaction of its change. A consumer that has read all events up to an
id and asks for later ids misses none: ids become visible in their order. For this, ids are a
counter in one row, which a transaction locks until it commits. With a sequence of PostgreSQL, 6
could become visible before 5, and 5 would be missed.

The row is locked as late as possible. `record` collects events in memory, and `Registry` calls
`write` as the last step of the transaction. Transactions therefore wait for each other briefly, and
cannot deadlock: none of them asks for another lock afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from recalib.contract.events import Event
from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now

_TABLE = tables.events
_SEQUENCE = tables.event_sequence
#: Execution option of a connection: the events that its transaction has recorded.
_RECORDED = "recalib_events"


class Events(Queries):
    """Changes in their order."""

    @staticmethod
    def start(connection: Connection) -> None:
        """Prepare the connection of a new transaction."""
        connection.execution_options(**{_RECORDED: []})

    def record(self, type: str, model: str | None, data: dict[str, Any]) -> None:
        """Add an event to this transaction.

        Parameters
        ----------
        type: thing and verb, such as `job.failed`; lower-case words and underscores.
        model: name of the model that it concerns, or None.
        data: values that JSON can represent.
        """
        self._recorded.append({"type": type, "model": model, "data": data})

    def write(self) -> None:
        """Write the recorded events; the last statements of a transaction."""
        recorded = self._recorded
        if not recorded:
            return
        last = self._connection.scalar(
            update(_SEQUENCE)
            .values(last=_SEQUENCE.c.last + len(recorded))
            .returning(_SEQUENCE.c.last)
        )
        rows = [
            {**event, "id": last - len(recorded) + number}
            for number, event in enumerate(recorded, start=1)
        ]
        self._connection.execute(insert(_TABLE).values(at=now()), rows)
        recorded.clear()

    def last(self) -> int:
        """Return the id of the newest event, 0 before the first; cheap to poll."""
        return int(self._connection.scalars(select(_SEQUENCE.c.last)).one())

    def gap(self, after: int) -> int | None:
        """Return the first id that a consumer can read, if it misses events; otherwise None.

        Parameters
        ----------
        after: the id up to which the consumer has all events; 0 if it has none. Later events may
            have been deleted by age. An id above the newest is of a database that was replaced by
            its backup.
        """
        last = self.last()
        if after > last:
            return last + 1
        first = self._connection.scalar(select(func.min(_TABLE.c.id))) or last + 1
        return first if 0 < after < first - 1 else None

    def page(
        self,
        limit: int,
        *,
        after: int = 0,
        before: int | None = None,
        models: Collection[str] | None = None,
        types: Collection[str] | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """Return up to `limit` events, by id.

        Parameters
        ----------
        after, before: ids that bound the page; both are excluded.
        models: names of models; None for all events.
        types: types, or their first words: `job` for `job.failed`; None for all.
        """
        order = _TABLE.c.id.desc() if newest_first else _TABLE.c.id
        statement = select(_TABLE).where(_TABLE.c.id > after).order_by(order).limit(limit)
        if before is not None:
            statement = statement.where(_TABLE.c.id < before)
        if models is not None:
            statement = statement.where(_TABLE.c.model.in_(models))
        if types is not None:
            prefixes = (_TABLE.c.type.startswith(f"{type}.", autoescape=True) for type in types)
            statement = statement.where(or_(_TABLE.c.type.in_(types), *prefixes))
        return self._read(Event, statement)

    def rename(self, before: str, after: str) -> None:
        """Let the events of a model follow its new name."""
        self._connection.execute(update(_TABLE).where(_TABLE.c.model == before).values(model=after))

    def purge(self, older_than_seconds: float) -> int:
        """Delete older events; return their number."""
        return self._execute(delete(_TABLE).where(_TABLE.c.at < now() - older_than_seconds))

    @property
    def _recorded(self) -> list[dict[str, Any]]:
        return self._connection.get_execution_options()[_RECORDED]
