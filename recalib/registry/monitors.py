"""Queries of the tables `monitors`, `cohorts`, `assessments` and `monitoring_events`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, tuple_, update

from recalib.contract.monitoring import MonitoringEvent
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.errors import ConflictError
from recalib.registry import monitoring_tables, tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries, columns_without
from recalib.registry.clock import now
from recalib.registry.events import Events
from recalib.registry.labels import Labels
from recalib.registry.models import WITH_CHAMPIONS
from recalib.registry.records import Assessment, CohortRow, Model, MonitorRow
from recalib.registry.traffic import Traffic

_MONITOR = monitoring_tables.monitors
_COHORT = monitoring_tables.cohorts
_ASSESSMENT = monitoring_tables.assessments
_EVENT = monitoring_tables.monitoring_events
_COLUMNS = columns_without(_MONITOR, "model_id", "state")
_COHORT_COLUMNS = columns_without(_COHORT, "model_id", "version")
#: What `count_late` and `adapt` change.
_WRITTEN_APART = ("late", "adaptation")
#: Events that are states (`recalib.drift.STATES`), not actions: no entry in the audit trail.
_STATES = ("fresh", "unverified", "suspect", "stale")
#: Kinds of events of evidence, whatever the state.
_WARNINGS = ("labels_stopped", "labels_rare", "rows_dependent", "rows_repeated")


class Monitors(Queries):
    """Monitoring state of calibrators."""

    def find(self, model: Model, version: int, *, with_state: bool = False) -> MonitorRow | None:
        """Return the monitor of a version, or None.

        Parameters
        ----------
        with_state: whether to read `state`, which may have megabytes; it is empty otherwise.
        """
        columns = [*_COLUMNS, _MONITOR.c.state] if with_state else _COLUMNS
        where = _MONITOR.c.model_id == model.id, _MONITOR.c.version == version
        return self._find(_monitor_row, select(*columns).where(*where))

    def all(self, model: Model) -> list[MonitorRow]:
        """Return all monitors of a model, by version, without their states."""
        where = _MONITOR.c.model_id == model.id
        statement = select(*_COLUMNS).where(where).order_by(_MONITOR.c.version)
        return self._read(_monitor_row, statement)

    def champions(self) -> list[tuple[str, MonitoringSettings, MonitorRow]]:
        """Return the monitored champions: model, settings, and monitor without its state."""
        models = tables.models
        statement = (
            select(models.c.name.label("model"), models.c.monitoring, *_COLUMNS)
            .select_from(WITH_CHAMPIONS)
            .where(_MONITOR.c.version.is_not(None))
            .order_by(models.c.name)
        )
        return self._read(_champion, statement)

    def champions_without_monitor(self) -> list[tuple[str, int, float]]:
        """Return champions without a monitor: model, version, and the time of promotion."""
        models, aliases, changes = tables.models, tables.aliases, tables.alias_changes
        statement = (
            select(models.c.name, aliases.c.version, changes.c.changed_at)
            .select_from(WITH_CHAMPIONS)
            .join(changes, changes.c.revision == aliases.c.revision)
            .where(_MONITOR.c.version.is_(None))
            .order_by(models.c.name)
        )
        rows = self._connection.execute(statement)
        return [(name, version, since) for name, version, since in rows]

    def next_number(self, model: Model) -> int:
        """Return the number of the next test of the model, from 1."""
        last = select(func.max(_MONITOR.c.number)).where(_MONITOR.c.model_id == model.id)
        return 1 + (self._connection.scalar(last) or 0)

    def save(
        self,
        model: Model,
        row: MonitorRow,
        cohorts: Sequence[CohortRow] = (),
        assessments: Sequence[Assessment] = (),
    ) -> None:
        """Write the next turn of a monitor, with the cohorts added since the last turn.

        Optimistic locking: of two processes that have read the same turn, only one can write the
        next, so no cohort is added twice. `late` and `adaptation` are not written: `count_late` and
        `adapt` change them.

        Raises
        ------
        ConflictError: another process has written this turn, or has given the number of the test to
            another version.
        """
        self._check_number(model, row)
        values = asdict(row)
        version = values.pop("version")
        if row.turn == 1:
            self._insert(
                insert(_MONITOR).values(model_id=model.id, version=version, **values),
                conflict=_conflict(model, version),
            )
        else:
            written = {name: v for name, v in values.items() if name not in _WRITTEN_APART}
            before = _MONITOR.c.version == version, _MONITOR.c.turn == row.turn - 1
            of_turn = update(_MONITOR).where(_MONITOR.c.model_id == model.id, *before)
            if self._execute(of_turn.values(written)) != 1:
                raise ConflictError(_conflict(model, version))
        of_version = insert(_COHORT).values(model_id=model.id, version=version)
        for cohort in cohorts:
            self._execute(of_version.values(**asdict(cohort)))
        for assessment in assessments:
            self._execute(insert(_ASSESSMENT).values(model_id=model.id, **asdict(assessment)))

    def _check_number(self, model: Model, row: MonitorRow) -> None:
        """Raise `ConflictError` if a new number is another version's: α would be spent twice.

        The row of the model is locked: another process may write the number at the same time.
        """
        models, same = tables.models, _MONITOR.c.number == row.number
        versions = select(_MONITOR.c.version).where(_MONITOR.c.model_id == model.id, same)
        if row.version in self._connection.scalars(versions).all():
            return
        lock = select(models.c.id).where(models.c.id == model.id).with_for_update(key_share=True)
        self._connection.execute(lock)
        if self._connection.scalars(versions).first() is not None:
            raise ConflictError(_conflict(model, row.version))

    def check_replay(self, model: Model, version: int, through: float) -> None:
        """Check that predictions before `through` can come from a log of the past.

        Raises
        ------
        ConflictError: the version has monitoring state, or has served predictions before.
        """
        row = self.find(model, version)
        title = f"version {version} of {model.name!r}"
        if row is not None and row.through > 0:
            raise ConflictError(
                f"{title} is monitored until {_iso(row.through)}, and a log is replayed only into a"
                " version without monitoring state: publish the calibrator again, and replay the"
                " log into the new version"
            )
        counts = Traffic(self._connection), Labels(self._connection)
        times = [queries.first(model, version, 0.0) for queries in counts]
        first = min((time for time in times if time is not None), default=through)
        if first < through:
            raise ConflictError(
                f"{title} has served predictions since {_iso(first)}, and the log has predictions"
                f" until {_iso(through)}: cut the log at that time"
            )

    def through(self, model: Model, versions: Collection[int]) -> dict[int, float]:
        """Return the time before which predictions are assessed, by monitored version."""
        rows = self._connection.execute(
            select(_MONITOR.c.version, _MONITOR.c.through).where(
                _MONITOR.c.model_id == model.id, _MONITOR.c.version.in_(versions)
            )
        )
        return {row.version: row.through for row in rows}

    def count_late(self, model: Model, version: int, labels: int) -> None:
        """Add to the number of late labels."""
        self._connection.execute(
            update(_MONITOR)
            .where(_MONITOR.c.model_id == model.id, _MONITOR.c.version == version)
            .values(late=_MONITOR.c.late + labels)
        )

    def adapt(self, model: Model, row: MonitorRow, adaptation: dict[str, Any]) -> bool:
        """Write the adaptation of a version, as a turn; False if there was a turn since `row`."""
        where = _MONITOR.c.version == row.version, _MONITOR.c.turn == row.turn
        statement = update(_MONITOR).where(_MONITOR.c.model_id == model.id, *where)
        return bool(self._execute(statement.values(adaptation=adaptation, turn=row.turn + 1)))

    def cohorts(self, model: Model, version: int, since: float, limit: int) -> list[CohortRow]:
        """Return up to `limit` cohorts that began at `since` or later, the newest first."""
        of_version = _COHORT.c.model_id == model.id, _COHORT.c.version == version
        statement = (
            select(*_COHORT_COLUMNS)
            .where(*of_version, _COHORT.c.started_at >= since)
            .order_by(_COHORT.c.started_at.desc(), _COHORT.c.segment)
            .limit(limit)
        )
        return self._read(CohortRow, statement)

    def assessments(
        self,
        model: Model,
        limit: int,
        version: int | None = None,
        before: tuple[float, int] | None = None,
    ) -> list[Assessment]:
        """Return up to `limit` assessments, by the start of their cohorts, the newest first.

        Parameters
        ----------
        version: of this version alone; None: of all.
        before: start and version of the last assessment of the previous page.
        """
        columns = columns_without(_ASSESSMENT, "model_id")
        position = tuple_(_ASSESSMENT.c.started_at, _ASSESSMENT.c.version)
        statement = select(*columns).where(_ASSESSMENT.c.model_id == model.id)
        if version is not None:
            statement = statement.where(_ASSESSMENT.c.version == version)
        if before is not None:
            statement = statement.where(position < before)
        order = (_ASSESSMENT.c.started_at.desc(), _ASSESSMENT.c.version.desc())
        return self._read(Assessment, statement.order_by(*order).limit(limit))

    def cohorts_at(
        self, model: Model, assessments: Sequence[Assessment]
    ) -> dict[tuple[float, int], list[CohortRow]]:
        """Return the cohorts of assessments, by start and version, each by segment."""
        keys = [(item.started_at, item.version) for item in assessments]
        rows = self._connection.execute(
            select(_COHORT.c.version, *_COHORT_COLUMNS)
            .where(
                _COHORT.c.model_id == model.id,
                tuple_(_COHORT.c.started_at, _COHORT.c.version).in_(keys),
            )
            .order_by(_COHORT.c.segment)
        )
        cohorts: dict[tuple[float, int], list[CohortRow]] = {key: [] for key in keys}
        for row in rows:
            values = dict(row._mapping)
            version = values.pop("version")
            cohorts[row.started_at, version].append(CohortRow(**values))
        return cohorts

    def record(
        self,
        model: Model,
        version: int,
        kind: str,
        actor: str,
        reason: str,
        evidence: dict[str, Any] | None = None,
        *,
        replayed_at: float | None = None,
    ) -> None:
        """Add an event: a new state, a new warning, or an action.

        Parameters
        ----------
        replayed_at: the time of a state in a log of the past; by default the event is of now.
        """
        values = {"version": version, "kind": kind, "actor": actor, "reason": reason}
        replayed = replayed_at is not None
        statement = insert(_EVENT).values(model_id=model.id, evidence=evidence or {}, **values)
        at = replayed_at if replayed else now()
        self._connection.execute(statement.values(at=at, replayed=replayed))
        events = Events(self._connection)
        data = {"version": version, "actor": actor, "reason": reason, "evidence": evidence or {}}
        if replayed:
            data |= {"replayed": True, "time": replayed_at}
        if kind in _STATES:
            events.record("monitoring.state_changed", model.name, {**data, "state": kind})
        elif kind in _WARNINGS:
            events.record("monitoring.warned", model.name, {**data, "warning": kind})
        else:
            events.record(f"candidate.{kind}", model.name, data)
            target = f"version {version}"
            Audit(self._connection).record(actor, f"candidate_{kind}", model.name, target, reason)

    def events(self, model: Model, limit: int) -> list[MonitoringEvent]:
        """Return up to `limit` events, newest first."""
        statement = (
            select(*columns_without(_EVENT, "id", "model_id"))
            .where(_EVENT.c.model_id == model.id)
            # Events from a log of the past are written after later ones.
            .order_by(_EVENT.c.at.desc(), _EVENT.c.id.desc())
            .limit(limit)
        )
        return self._read(MonitoringEvent, statement)

    def delete_cohorts(self, model: Model, before: float) -> int:
        """Delete cohorts that ended before `before`, and assessments; return their number."""
        for table in (_ASSESSMENT, _COHORT):
            old = table.c.model_id == model.id, table.c.ended_at < before
            count = self._execute(delete(table).where(*old))
        return count


def _monitor_row(*, state: dict[str, Any] | None = None, **row: Any) -> MonitorRow:
    return MonitorRow(**row, state=state or {})


def _champion(
    *, model: str, monitoring: Any, **row: Any
) -> tuple[str, MonitoringSettings, MonitorRow]:
    return model, MonitoringSettings.of(monitoring), _monitor_row(**row)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _conflict(model: Model, version: int) -> str:
    return f"the monitor of {model.name}, version {version}, was changed by another process"
