"""Queries of the table `adaptations`: states that adapt the answers of champions to label shift."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, exists, func, insert, select

from recalib.registry import monitoring_tables, tables
from recalib.registry.base import Queries
from recalib.registry.clock import read_clock
from recalib.registry.records import Model

_TABLE = monitoring_tables.adaptations
#: A state outlives the ids that name it by this time.
_SLACK_SECONDS = 3600.0


class Adaptations(Queries):
    """States by number, as JSON of `recalib.shift.ShadowState`."""

    def add(self, model: Model, version: int, states: Sequence[dict[str, Any]]) -> None:
        """Add the states whose numbers are above those of before.

        Raises
        ------
        ConflictError: another process has just added one of them.
        """
        of_version = _TABLE.c.model_id == model.id, _TABLE.c.version == version
        last = self._connection.scalar(select(func.max(_TABLE.c.number)).where(*of_version)) or 0
        for state in states:
            if state["number"] > last:
                values = {"number": state["number"], "since": state["since"], "state": state}
                statement = insert(_TABLE).values(model_id=model.id, version=version, **values)
                conflict = f"state {state['number']} of {model.name}, version {version}, exists"
                self._insert(statement, conflict=conflict)

    def serving(self) -> dict[tuple[int, int], int]:
        """Return the newest numbers of the champions that adapt, by id of the model and version."""
        models, aliases = tables.models, tables.aliases
        same = (aliases.c.model_id == _TABLE.c.model_id) & (aliases.c.version == _TABLE.c.version)
        statement = (
            select(_TABLE.c.model_id, _TABLE.c.version, func.max(_TABLE.c.number))
            .join(aliases, same & (aliases.c.alias == "champion"))
            .join(models, models.c.id == _TABLE.c.model_id)
            .where(models.c.monitoring["adaptation"].as_string() == "label_shift")
            .group_by(_TABLE.c.model_id, _TABLE.c.version)
        )
        return {(model, version): n for model, version, n in self._connection.execute(statement)}

    def states(
        self, model_id: int, version: int, numbers: Collection[int]
    ) -> dict[int, dict[str, Any]]:
        """Return the states of a version with these numbers that are kept."""
        where = _TABLE.c.model_id == model_id, _TABLE.c.version == version
        statement = select(_TABLE.c.number, _TABLE.c.state).where(*where)
        rows = self._connection.execute(statement.where(_TABLE.c.number.in_(numbers)))
        return {row.number: row.state for row in rows}

    def purge(self, lifetime_seconds: float) -> int:
        """Delete the states that no valid prediction id names; return their number."""
        before = read_clock(self._connection) - (lifetime_seconds + _SLACK_SECONDS)
        later = _TABLE.alias()
        ended = exists().where(
            later.c.model_id == _TABLE.c.model_id,
            later.c.version == _TABLE.c.version,
            later.c.number > _TABLE.c.number,
            later.c.since < before,
        )
        return int(self._connection.execute(delete(_TABLE).where(ended)).rowcount)
