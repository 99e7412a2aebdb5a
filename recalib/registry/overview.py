"""All models at a glance: the champion of each, its monitoring state, and its recent traffic."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select

from recalib.registry import monitoring_tables, tables
from recalib.registry.base import Queries
from recalib.registry.clock import now
from recalib.registry.models import WITH_CHAMPIONS

_MODEL, _ALIAS, _MONITOR = tables.models, tables.aliases, monitoring_tables.monitors
_TRAFFIC = monitoring_tables.traffic
#: The state of a model without a champion.
NO_CHAMPION = "uncalibrated"
#: From the most to the least urgent.
STATES = ("stale", "suspect", "unverified", NO_CHAMPION, "fresh")
_STATE = case(
    (_ALIAS.c.version.is_(None), NO_CHAMPION),
    else_=func.coalesce(_MONITOR.c.status["state"].as_string(), "unverified"),
)
_URGENCY = case({name: place for place, name in enumerate(STATES)}, value=_STATE, else_=9)
_COLUMNS = (
    _MODEL.c.id, _MODEL.c.name, _MODEL.c.description, _MODEL.c.tags, _MODEL.c.classes,
    _MODEL.c.task, _ALIAS.c.version, _MONITOR.c.status, _STATE.label("state"),
)  # fmt: skip


class ModelOverview(NamedTuple):
    """A row of the list of models."""

    name: str
    description: str
    tags: tuple[str, ...]
    classes: int
    task: str
    #: Of the champion; None without one.
    version: int | None
    #: One of `STATES`.
    state: str
    #: The last status of the champion's monitor: `reason`, `since`, `evidence`; empty without one.
    status: dict[str, Any]
    #: Predictions of the champion in the last day.
    predictions: int


class Overview(Queries):
    """Lists and counts of models by the state of their champions."""

    def page(
        self,
        limit: int,
        offset: int = 0,
        *,
        name: str = "",
        state: str | None = None,
        by_name: bool = False,
        of: Collection[str] | None = None,
    ) -> list[ModelOverview]:
        """Return models, the most urgent states first and then by name.

        Parameters
        ----------
        name: a part of the names, without regard to case.
        state: one of `STATES`; None for all.
        by_name: sort by name alone.
        of: the names of models that the caller may see; None for all.
        """
        statement = _matching(select(*_COLUMNS), name, of).limit(limit).offset(offset)
        if state is not None:
            statement = statement.where(_STATE.in_((state,)))
        order: list[ColumnElement[Any]] = [_MODEL.c.name]
        rows = self._connection.execute(
            statement.order_by(*(order if by_name else [_URGENCY, *order]))
        ).all()
        traffic = self._predictions({row.id: row.version for row in rows if row.version})
        return [
            ModelOverview(
                row.name, row.description, tuple(row.tags or ()), row.classes, row.task,
                row.version, row.state, row.status or {}, traffic.get(row.id, 0),
            )
            for row in rows
        ]  # fmt: skip

    def counts(self, name: str = "", of: Collection[str] | None = None) -> dict[str, int]:
        """Return the number of models in each state that occurs."""
        counted = select(_STATE, func.count())
        rows = self._connection.execute(_matching(counted, name, of).group_by(_STATE))
        return {state: count for state, count in rows}  # noqa: C416 - rows are not pairs to mypy

    def _predictions(self, versions: dict[int, int]) -> dict[int, int]:
        """Return the predictions of the last day, by the id of the model."""
        rows = self._connection.execute(
            select(_TRAFFIC.c.model_id, _TRAFFIC.c.version, func.sum(_TRAFFIC.c.predictions))
            .where(_TRAFFIC.c.model_id.in_(versions), _TRAFFIC.c.started_at > now() - 86_400)
            .group_by(_TRAFFIC.c.model_id, _TRAFFIC.c.version)
        )
        return {model: int(count) for model, version, count in rows if versions[model] == version}


def _matching(statement: Select[Any], name: str, of: Collection[str] | None) -> Select[Any]:
    found = statement.select_from(WITH_CHAMPIONS).where(_MODEL.c.deleted_at.is_(None))
    if name:
        found = found.where(_MODEL.c.name.icontains(name, autoescape=True))
    return found if of is None else found.where(_MODEL.c.name.in_(of))
