"""Queries of the table `calibrators`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Select,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    null,
    select,
    update,
)

from recalib.core.resource_names import is_name
from recalib.errors import NotFoundError
from recalib.registry import tables
from recalib.registry.aliases import Aliases, missing_version
from recalib.registry.base import Queries, select_page
from recalib.registry.clock import now
from recalib.registry.datasets import id_of
from recalib.registry.events import Events
from recalib.registry.jobs import Jobs
from recalib.registry.models import model_of
from recalib.registry.records import CalibratorVersion, ExpectedVersion, Lease, Model, Serving

_TABLE = tables.calibrators
_EXISTS = _TABLE.c.deleted_at.is_(None)
#: Columns of the statements below, beside those of the model.
_SERVING = ("serving_version", "parameters", "revision", "newest")


def _serving(*, by_alias: bool) -> Select[Any]:
    """Return the query of `Calibrators.serving`; building it takes longer than running it."""
    models, aliases = tables.models, tables.aliases
    newest = select(tables.alias_revision.c.revision).scalar_subquery()
    joined: Any = models
    version: Any = bindparam("version")
    revision: Any = null()
    if by_alias:
        condition = (aliases.c.model_id == models.c.id) & (aliases.c.alias == bindparam("alias"))
        joined = models.outerjoin(aliases, condition)
        version, revision = aliases.c.version, aliases.c.revision
    condition = (_TABLE.c.model_id == models.c.id) & (_TABLE.c.version == version) & _EXISTS
    columns = (_TABLE.c.version, _TABLE.c.parameters, revision, newest)
    return (
        select(
            models, *(column.label(name) for column, name in zip(columns, _SERVING, strict=True))
        )
        .select_from(joined.outerjoin(_TABLE, condition))
        .where(models.c.name == bindparam("name"))
    )


_BY_ALIAS, _BY_VERSION = _serving(by_alias=True), _serving(by_alias=False)


class Calibrators(Queries):
    """Versions of a model's calibrator, numbered from 1; a deleted number is not used again."""

    def publish(
        self,
        lease: Lease,
        model: Model,
        dataset_name: str | None,
        card: dict[str, Any],
        parameters: bytes,
        promote_alias: str | None,
        reason: str,
        expected: ExpectedVersion | None = None,
        row_digests: bytes | None = None,
    ) -> int:
        """Add the next version, point `promote_alias` at it unless None, and return its number.

        The caller finishes the job in the same transaction: both happen, or neither.

        Parameters
        ----------
        row_digests: the digests of the fitted rows, if they are of no data set.

        Raises
        ------
        FencedError: another worker has claimed the job.
        NotFoundError: the model or the data set was deleted.
        ConflictError: the alias does not point at `expected`.
        """
        Jobs(self._connection).hold(lease)
        version = self._next_version(model)
        self._insert(
            insert(_TABLE).values(
                model_id=model.id,
                version=version,
                dataset_id=self._dataset_id(model, dataset_name),
                job_id=lease.job.id,
                card=card,
                parameters=parameters,
                row_digests=row_digests,
                created_at=now(),
            ),
            conflict=f"job {lease.job.id} has published a calibrator already",
        )
        data = {"version": version, "map": card.get("map"), "dataset": dataset_name}
        data |= {"job": lease.job.id}
        Events(self._connection).record("calibrator.published", model.name, data)
        if promote_alias is not None:
            actor = f"job:{lease.job.id}"
            Aliases(self._connection).set(model, promote_alias, version, actor, reason, expected)
        return version

    def get(self, model: Model, version: int) -> CalibratorVersion:
        """Return the version, or raise `NotFoundError`."""
        found = self._find(_version, _select(model).where(_TABLE.c.version == version))
        if found is None:
            raise missing_version(model, version)
        return found

    def parameters(self, model: Model, version: int) -> bytes:
        """Return the parameter file of the version, or raise `NotFoundError`."""
        content = self._connection.scalar(
            select(_TABLE.c.parameters).where(
                _TABLE.c.model_id == model.id, _TABLE.c.version == version, _EXISTS
            )
        )
        if content is None:
            raise missing_version(model, version)
        return bytes(content)

    def row_digests(self, model: Model, version: int) -> bytes | None:
        """Return the digests of the rows that a version was fitted on, 8 bytes each, sorted.

        None if there is no such version, or it was published before digests were recorded.
        """
        datasets = tables.datasets
        digests = self._connection.scalar(
            select(func.coalesce(_TABLE.c.row_digests, datasets.c.row_digests))
            .outerjoin(datasets, datasets.c.id == _TABLE.c.dataset_id)
            .where(_TABLE.c.model_id == model.id, _TABLE.c.version == version)
        )
        return None if digests is None else bytes(digests)

    def serving(self, name: str, selector: str | int) -> Serving:
        """Return the version for an alias or version number of a model, in one query.

        Raise `NotFoundError` if there is no such model. `selector` is not validated by the caller.
        """
        if not is_name(name):
            raise NotFoundError("model", name)
        if isinstance(selector, int):
            statement, values = _BY_VERSION, {"name": name, "version": selector}
        else:
            # PostgreSQL rejects text with NUL, so only names are queried; no alias is empty.
            alias = selector if is_name(selector) else ""
            statement, values = _BY_ALIAS, {"name": name, "alias": alias}
        row = self._connection.execute(statement, values).one_or_none()
        if row is None:
            raise NotFoundError("model", name)
        columns = dict(row._mapping)
        version, parameters, revision, newest = (columns.pop(key) for key in _SERVING)
        content = None if parameters is None else bytes(parameters)
        return Serving(model_of(**columns), version, content, revision or 0, newest)

    def deleted(self, model: Model) -> set[int]:
        """Return the versions of the model that were deleted, or erased since."""
        models = tables.models
        latest = select(models.c.latest_version).where(models.c.id == model.id)
        remaining = select(_TABLE.c.version).where(_TABLE.c.model_id == model.id, _EXISTS)
        versions = range(1, self._connection.scalars(latest).one() + 1)
        return set(versions) - set(self._connection.scalars(remaining))

    def unpromoted_versions(self, model: Model, before: float) -> list[int]:
        """Return the versions from before a time that no alias has ever pointed at."""
        changes = tables.alias_changes
        was_promoted = exists().where(
            changes.c.model_id == _TABLE.c.model_id, changes.c.to_version == _TABLE.c.version
        )
        statement = _select(model).where(_TABLE.c.created_at < before, ~was_promoted)
        return [row.version for row in self._connection.execute(statement)]

    def latest(self, model: Model) -> CalibratorVersion | None:
        """Return the newest version, or None before the first."""
        return self._find(_version, _select(model).order_by(_TABLE.c.version.desc()).limit(1))

    def newest(self, model: Model, since: float, limit: int) -> list[CalibratorVersion]:
        """Return up to `limit` versions that are newer than a time, newest first."""
        statement = _select(model).order_by(_TABLE.c.version.desc()).limit(limit)
        return self._read(_version, statement.where(_TABLE.c.created_at > since))

    def page(self, model: Model, after: int | None, limit: int) -> list[CalibratorVersion]:
        """Return up to `limit` versions, oldest first, after version `after`."""
        return self._read(_version, select_page(_select(model), _TABLE.c.version, limit, after))

    def _next_version(self, model: Model) -> int:
        # The update locks the row of the model until commit: concurrent publishers of a model wait
        # here, and a rollback leaves no gap in the numbers. A deletion waits too, or has been
        # faster: then the model has lost its name.
        models = tables.models
        statement = (
            update(models)
            .where(models.c.id == model.id, models.c.name == model.name)
            .values(latest_version=models.c.latest_version + 1)
            .returning(models.c.latest_version)
        )
        version = self._connection.scalar(statement)
        if version is None:
            raise NotFoundError("model", model.name)
        return int(version)

    def _dataset_id(self, model: Model, name: str | None) -> int | None:
        if name is None:
            return None
        dataset_id = self._connection.scalar(id_of(model, name))
        if dataset_id is None:
            raise NotFoundError("dataset", name, hint=f"the model is {model.name}")
        return int(dataset_id)


def _version(*, tags: list[str] | None, **row: Any) -> CalibratorVersion:
    return CalibratorVersion(**row, tags=tuple(tags or ()))


def _select(model: Model) -> Select[Any]:
    datasets = tables.datasets
    return (
        select(
            literal(model.name).label("model"),
            _TABLE.c.version,
            _TABLE.c.card,
            case((datasets.c.deleted_at.is_(None), datasets.c.name)).label("dataset"),
            _TABLE.c.job_id,
            _TABLE.c.created_at,
            _TABLE.c.description,
            _TABLE.c.tags,
        )
        .outerjoin(datasets, datasets.c.id == _TABLE.c.dataset_id)
        .where(_TABLE.c.model_id == model.id, _EXISTS)
    )
