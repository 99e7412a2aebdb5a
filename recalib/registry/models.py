"""Queries of the table `models`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, func, insert, select, update

from recalib.contract.models import Task
from recalib.core.card import PredictionPolicy
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.resource_names import check_name
from recalib.core.retention_settings import RetentionSettings
from recalib.core.sanitize import sanitize_line
from recalib.core.watched_classes import watched_indices
from recalib.errors import InputError, NotFoundError
from recalib.registry import monitoring_tables, tables
from recalib.registry.base import Queries, select_page
from recalib.registry.clock import now
from recalib.registry.details import has_tag
from recalib.registry.records import Model

_TABLE = tables.models
_HIDDEN = ("deleted_at", "purged_at")
_ALIAS, _MONITOR = tables.aliases, monitoring_tables.monitors
#: Each model with its champion and the monitor of that, if it has them.
WITH_CHAMPIONS = _TABLE.outerjoin(
    _ALIAS, (_ALIAS.c.model_id == _TABLE.c.id) & (_ALIAS.c.alias == "champion")
).outerjoin(
    _MONITOR, (_MONITOR.c.model_id == _ALIAS.c.model_id) & (_MONITOR.c.version == _ALIAS.c.version)
)


class Models(Queries):
    """Classifiers with calibrators."""

    def create(
        self,
        name: str,
        labels: tuple[str, ...] | None,
        classes: int,
        actor: str,
        monitoring: MonitoringSettings | None = None,
        task: Task = "multiclass",
        predictions: PredictionPolicy | None = None,
        serve_uncalibrated: bool = True,
    ) -> Model:
        """Add a model; `ExistsError` if the name is taken.

        Raises
        ------
        InputError: the name or the labels are not valid, monitoring names an unknown class, or the
            model cannot have the setting `predictions`.
        """
        check_name("name", name)
        _check_classes(labels, classes)
        if predictions is not None:
            check_predictions(predictions, classes, task)
        if monitoring is not None:
            _check_monitoring(monitoring, classes, labels, task)
        statement = insert(_TABLE).values(
            name=name,
            classes=classes,
            labels=None if labels is None else list(labels),
            latest_version=0,
            created_by=actor,
            created_at=now(),
            monitoring=None if monitoring is None else monitoring.to_dict(),
            task=task,
            predictions=predictions,
            serve_uncalibrated=serve_uncalibrated,
        )
        self._insert(statement, conflict=f"a model named {name!r} already exists")
        return self.get(name)

    def get(self, name: str, *, locked: bool = False) -> Model:
        """Return the model, locked for a change if asked, or raise `NotFoundError`."""
        statement = select(_TABLE).where(_TABLE.c.name == name)
        return self._get(
            model_of, statement.with_for_update() if locked else statement, "model", name
        )

    def hold(self, model: Model, *, exclusively: bool = False) -> None:
        """Keep the model from being deleted or renamed until the transaction ends.

        What creates something in a model calls this first. In PostgreSQL, two transactions of one
        model run side by side unless one of them holds it exclusively; in SQLite, never.

        Raises
        ------
        NotFoundError: it was deleted or renamed since `model` was read.
        """
        statement = select(_TABLE.c.id).where(_TABLE.c.id == model.id, _TABLE.c.name == model.name)
        shared = not exclusively
        locked = statement.with_for_update(read=shared, key_share=shared)
        if self._connection.scalar(locked) is None:
            raise NotFoundError("model", model.name)

    def set_monitoring(self, name: str, monitoring: MonitoringSettings) -> Model:
        """Change the monitoring settings; the row stays locked until the transaction ends.

        Raises
        ------
        ConflictError: the numbers of segments would change.
        InputError: an unknown class.
        """
        model = self.get(name, locked=True)
        model.monitoring.check_change(monitoring)
        model.retention.check_monitoring(monitoring)
        _check_monitoring(monitoring, model.classes, model.labels, model.task)
        statement = update(_TABLE).where(_TABLE.c.name == name)
        self._connection.execute(statement.values(monitoring=monitoring.to_dict()))
        return self.get(name)

    def monitoring(self, ids: Collection[int]) -> dict[int, MonitoringSettings]:
        """Return the monitoring settings of these models, by id."""
        columns = select(_TABLE.c.id, _TABLE.c.monitoring)
        rows = self._connection.execute(columns.where(_TABLE.c.id.in_(ids)))
        return {row.id: MonitoringSettings.of(row.monitoring) for row in rows}

    def page(
        self,
        after: str | None,
        limit: int,
        *,
        name: str | None = None,
        tag: str | None = None,
        state: str | None = None,
    ) -> list[Model]:
        """Return up to `limit` models sorted by name, after the name `after`.

        Parameters
        ----------
        name: a part of the names, without regard to case; None for all, as in the others.
        tag: a tag of the models.
        state: the monitoring state of their champions; `unverified` without a champion.
        """
        exists = _TABLE.c.deleted_at.is_(None)
        statement = select_page(select(_TABLE).where(exists), _TABLE.c.name, limit, after)
        if name is not None:
            statement = statement.where(_TABLE.c.name.icontains(name, autoescape=True))
        if tag is not None:
            statement = statement.where(has_tag(self._connection, _TABLE.c.tags, tag))
        if state is not None:
            statement = _with_state(statement, state)
        return self._read(model_of, statement)


def check_predictions(predictions: PredictionPolicy, classes: int, task: Task) -> None:
    """Raise `InputError` if a model of this kind cannot have the setting."""
    if task == "multilabel":
        accepted = "none: the map `auto` is for models with one class in each row"
        raise InputError("predictions", found=predictions, accepted=accepted)
    if predictions == "keep_order" and classes != 2:
        found = f"keep_order with {classes} classes"
        raise InputError("predictions", found=found, accepted="keep or may_change")


def model_of(
    *, labels: list[str] | None, tags: list[str] | None, monitoring: Any, retention: Any, **row: Any
) -> Model:
    """Return the record of the columns of `models`."""
    return Model(
        **{name: value for name, value in row.items() if name not in _HIDDEN},
        labels=None if labels is None else tuple(labels),
        monitoring=MonitoringSettings.of(monitoring),
        tags=tuple(tags or ()),
        retention=RetentionSettings.of(retention),
    )


def _with_state(statement: Select[Any], state: str) -> Select[Any]:
    """Return the query of models for those whose champion has a monitoring state."""
    current = func.coalesce(_MONITOR.c.status["state"].as_string(), "unverified")
    return statement.select_from(WITH_CHAMPIONS).where(current == state)


def _check_monitoring(
    monitoring: MonitoringSettings, classes: int, labels: Sequence[str] | None, task: Task
) -> None:
    if monitoring.classes:
        watched_indices(monitoring.classes, classes, labels)
    if monitoring.adaptation != "none" and task == "multilabel":
        accepted = "none: a multilabel row has no class shares"
        raise InputError("adaptation", found=monitoring.adaptation, accepted=accepted)


def _check_classes(labels: tuple[str, ...] | None, classes: int) -> None:
    if classes < 2:
        raise InputError("classes", found=str(classes), accepted="at least 2")
    if labels is None:
        return
    if len(labels) != classes:
        raise InputError(
            "labels", found=f"{len(labels)} labels", accepted=f"{classes}, one per class"
        )
    if len(set(labels)) != classes:
        raise InputError("labels", found="a label twice", accepted="a different label per class")
    for index, label in enumerate(labels):
        if sanitize_line(label) != label:
            accepted = "a line of text without control characters and marks of direction"
            raise InputError(f"labels[{index}]", found=repr(label)[:80], accepted=accepted)
