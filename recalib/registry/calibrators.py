"""Queries of the table of published calibrators."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, insert, select, update

from recalib.errors import NotFoundError
from recalib.registry import tables
from recalib.registry.aliases import Aliases
from recalib.registry.clock import now
from recalib.registry.jobs import Jobs
from recalib.registry.queries import Queries
from recalib.registry.records import CalibratorVersion, Expected, Lease, Model

__all__ = ["Calibrators"]

_TABLE = tables.calibrators


class Calibrators(Queries):
    """Versions of a model's calibrator, numbered from 1 without gaps."""

    def publish(
        self,
        lease: Lease,
        model: Model,
        dataset_name: str | None,
        card: dict[str, Any],
        parameters: bytes,
        promote_alias: str | None,
        reason: str,
        expected: Expected | None = None,
    ) -> int:
        """Add the next version, point `promote_alias` at it if there is one, return its number.

        `FencedError` where the job has passed to another worker; `ConflictError` where the alias
        points elsewhere than `expected`. The caller finishes the job in
        the same transaction; either both happen or neither.
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
                created_at=now(),
            ),
            conflict=f"job {lease.job.id} has published a calibrator already",
        )
        if promote_alias is not None:
            actor = f"job:{lease.job.id}"
            Aliases(self._connection).set(model, promote_alias, version, actor, reason, expected)
        return version

    def get(self, model: Model, version: int) -> CalibratorVersion:
        """Return the version, or raise `NotFoundError`."""
        row = self._connection.execute(
            _select(model).where(_TABLE.c.version == version)
        ).one_or_none()
        if row is None:
            raise NotFoundError("version", str(version), hint=f"{model.name} has none so numbered")
        return CalibratorVersion(model=model.name, **row._mapping)

    def parameters(self, model: Model, version: int) -> bytes:
        """Return the parameter file of the version, or raise `NotFoundError`."""
        content = self._connection.scalar(
            select(_TABLE.c.parameters).where(
                _TABLE.c.model_id == model.id, _TABLE.c.version == version
            )
        )
        if content is None:
            raise NotFoundError("version", str(version), hint=f"{model.name} has none so numbered")
        return bytes(content)

    def latest(self, model: Model) -> CalibratorVersion | None:
        """Return the newest version, or None before the first."""
        row = self._connection.execute(
            _select(model).order_by(_TABLE.c.version.desc()).limit(1)
        ).one_or_none()
        return None if row is None else CalibratorVersion(model=model.name, **row._mapping)

    def page(self, model: Model, after: int | None, limit: int) -> list[CalibratorVersion]:
        """Return up to `limit` versions, oldest first, from the one behind `after`."""
        statement = _select(model).order_by(_TABLE.c.version).limit(limit)
        if after is not None:
            statement = statement.where(_TABLE.c.version > after)
        rows = self._connection.execute(statement)
        return [CalibratorVersion(model=model.name, **row._mapping) for row in rows]

    def _next_version(self, model: Model) -> int:
        # The update keeps the model's row locked until commit: publishers of one model queue up
        # here, and one that rolls back gives its number back.
        models = tables.models
        statement = (
            update(models)
            .where(models.c.id == model.id)
            .values(latest_version=models.c.latest_version + 1)
            .returning(models.c.latest_version)
        )
        return int(self._connection.execute(statement).scalar_one())

    def _dataset_id(self, model: Model, name: str | None) -> int | None:
        if name is None:
            return None
        datasets = tables.datasets
        found = self._connection.scalar(
            select(datasets.c.id).where(datasets.c.model_id == model.id, datasets.c.name == name)
        )
        if found is None:
            raise NotFoundError("dataset", name, hint=f"looked among those of {model.name}")
        return int(found)


def _select(model: Model) -> Select[Any]:
    datasets = tables.datasets
    return (
        select(
            _TABLE.c.version,
            _TABLE.c.card,
            datasets.c.name.label("dataset"),
            _TABLE.c.job_id,
            _TABLE.c.created_at,
        )
        .outerjoin(datasets, datasets.c.id == _TABLE.c.dataset_id)
        .where(_TABLE.c.model_id == model.id)
    )
