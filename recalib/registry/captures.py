"""Queries of the table `captures`: files of sampled logits for refits."""

from __future__ import annotations

from sqlalchemy import delete, func, insert, select

from recalib.registry import monitoring_tables
from recalib.registry.base import Queries, columns_without
from recalib.registry.records import Capture, Model

_TABLE = monitoring_tables.captures
_COLUMNS = columns_without(_TABLE, "id", "model_id")


class Captures(Queries):
    """Files in the blob store, each with logits of predictions of one model."""

    def add(self, model_id: int, capture: Capture) -> None:
        """Add a file; its blob must be committed."""
        values = {column.name: getattr(capture, column.name) for column in _COLUMNS}
        self._connection.execute(insert(_TABLE).values(model_id=model_id, **values))

    def between(self, model: Model, start: float, end: float) -> list[Capture]:
        """Return the files with predictions from `start` until before `end`, by time."""
        overlap = (_TABLE.c.last_at >= start, _TABLE.c.first_at < end)
        captures = select(*_COLUMNS).where(_TABLE.c.model_id == model.id, *overlap)
        return self._read(Capture, captures.order_by(_TABLE.c.first_at, _TABLE.c.id))

    def delete(self, model: Model, before: float) -> list[str]:
        """Delete files whose predictions are all older than `before`; return their digests.

        The caller removes the blobs after the commit.
        """
        old = delete(_TABLE).where(_TABLE.c.model_id == model.id, _TABLE.c.last_at < before)
        return list(self._connection.scalars(old.returning(_TABLE.c.digest)))

    def totals(self, model: Model) -> tuple[int, int]:
        """Return the numbers of stored rows and bytes."""
        rows, size = func.sum(_TABLE.c.rows), func.sum(_TABLE.c.size_bytes)
        where = _TABLE.c.model_id == model.id
        total = self._connection.execute(select(rows, size).where(where)).one()
        return int(total[0] or 0), int(total[1] or 0)
