"""Erase deleted resources after their retention period: their rows, and then their blobs.

Before the rows of a blob are deleted, a temporary file in the blob store names it. If the process
is killed in between, `Registry.sweep` finds the blob by that file. Purges may run at the same time
and be interrupted anywhere: each step is one transaction, and a repetition finds what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, delete, exists, func, null, or_, select, update

from recalib.registry import monitoring_tables, tables
from recalib.registry.clock import now
from recalib.registry.registry import Registry
from recalib.registry.transaction import Transaction

_MODELS, _DATASETS, _CALIBRATORS = tables.models, tables.datasets, tables.calibrators
_JOBS, _CAPTURES = tables.jobs, monitoring_tables.captures
#: Resources of one kind that are looked up at once.
_PAGE = 100
#: Tables with rows of one version; those of `labels` are the many.
_OF_VERSIONS = (
    monitoring_tables.traffic, monitoring_tables.class_traffic, monitoring_tables.cohorts,
    monitoring_tables.assessments, monitoring_tables.monitors, monitoring_tables.adaptations,
    monitoring_tables.candidates, tables.calibrators,
)  # fmt: skip
#: Tables with rows of one model that has no versions, data sets, captures and jobs left.
_OF_MODELS = (tables.alias_changes, monitoring_tables.monitoring_events, tables.logit_scales)


def purge(registry: Registry, older_than_seconds: float) -> int:
    """Erase what was deleted longer ago; return the number of erased resources.

    Versions go before data sets and jobs, which they refer to, and models last.
    """
    with registry.reading() as tx:
        before = tx.clock() - older_than_seconds
    count = _purge_versions(registry, before)
    count += _purge_datasets(registry, before)
    _purge_captures(registry, before)
    count += _purge_jobs(registry, before)
    return count + _purge_models(registry, before)


def _purge_versions(registry: Registry, before: float) -> int:
    statement = _deleted(_CALIBRATORS, ("model_id", "version"), before)
    count = 0
    while rows := _rows(registry, statement):
        for model_id, version in rows:
            _erase_version(registry, model_id, version)
        count += len(rows)
    return count


def _deleted(table: Table, columns: tuple[str, ...], before: float) -> Select[Any]:
    """Return the query of rows that were deleted, or whose model was."""
    return (
        select(*(table.c[name] for name in columns))
        .join(_MODELS, _MODELS.c.id == table.c.model_id)
        .where(or_(table.c.deleted_at < before, _MODELS.c.deleted_at < before))
        .limit(_PAGE)
    )


def _erase_version(registry: Registry, model_id: int, version: int) -> None:
    step = 1
    while step:  # short transactions: in SQLite, all other writers wait
        with registry.transaction() as tx:
            step = tx.labels.delete_version(model_id, version)
    with registry.transaction() as tx:
        for table in _OF_VERSIONS:
            of_version = (table.c.model_id == model_id, table.c.version == version)
            tx.connection.execute(delete(table).where(*of_version))


def _purge_datasets(registry: Registry, before: float) -> int:
    statement = _deleted(_DATASETS, ("id", "digest"), before)
    count = 0
    while rows := _rows(registry, statement):
        for dataset_id, digest in rows:
            _erase(registry, [digest], lambda tx, key=dataset_id: _erase_dataset(tx, key))
        count += len(rows)
    return count


def _erase_dataset(tx: Transaction, dataset_id: int) -> None:
    """Delete a data set; versions that were fitted on it keep the digests of its rows."""
    digests = select(_DATASETS.c.row_digests).where(_DATASETS.c.id == dataset_id).scalar_subquery()
    tx.connection.execute(
        update(_CALIBRATORS)
        .where(_CALIBRATORS.c.dataset_id == dataset_id)
        .values(dataset_id=null(), row_digests=func.coalesce(_CALIBRATORS.c.row_digests, digests))
    )
    _delete(tx, _DATASETS, _DATASETS.c.id == dataset_id)


def _purge_captures(registry: Registry, before: float) -> None:
    statement = (
        select(_CAPTURES.c.id, _CAPTURES.c.digest)
        .join(_MODELS, _MODELS.c.id == _CAPTURES.c.model_id)
        .where(_MODELS.c.deleted_at < before)
        .limit(_PAGE)
    )
    while rows := _rows(registry, statement):
        keys = [row.id for row in rows]
        digests = [row.digest for row in rows]
        _erase(registry, digests, lambda tx, k=keys: _delete(tx, _CAPTURES, _CAPTURES.c.id.in_(k)))


def _purge_jobs(registry: Registry, before: float) -> int:
    """Erase training runs, and the jobs of models. A job whose version remains keeps its row.

    Jobs with a checkpoint wait: a worker removes the blobs of those that have ended.
    """
    is_published = exists().where(_CALIBRATORS.c.job_id == _JOBS.c.id)
    statement = (
        select(_JOBS.c.id, _JOBS.c.result)
        .outerjoin(_MODELS, _MODELS.c.id == _JOBS.c.model_id)
        .where(
            or_(_JOBS.c.deleted_at < before, _MODELS.c.deleted_at < before),
            _JOBS.c.state.not_in(("queued", "running")),
            _JOBS.c.checkpoint.is_(None),
            _JOBS.c.result.is_not(None) | ~is_published,
        )
        .limit(_PAGE)
    )
    count = 0
    while rows := _rows(registry, statement):
        for row in rows:
            digests = [file["digest"] for file in (row.result or {}).get("files", {}).values()]
            _erase(registry, digests, lambda tx, key=row.id: _erase_job(tx, key))
        count += len(rows)
    return count


def _erase_job(tx: Transaction, job_id: str) -> None:
    is_published = exists().where(_CALIBRATORS.c.job_id == job_id)
    where = _JOBS.c.id == job_id
    tx.connection.execute(update(_JOBS).where(where).values(result=null()))
    _delete(tx, _JOBS, where & ~is_published)


def _purge_models(registry: Registry, before: float) -> int:
    """Erase the content of models that have nothing left but jobs that have not ended yet."""
    statement = select(_MODELS.c.id).where(
        _MODELS.c.deleted_at < before, _MODELS.c.purged_at.is_(None)
    )
    rows = _rows(registry, statement)
    for (model_id,) in rows:
        with registry.transaction() as tx:
            for table in _OF_MODELS:
                _delete(tx, table, table.c.model_id == model_id)
            nothing = dict.fromkeys(("labels", "monitoring", "tags", "retention"), null())
            tx.connection.execute(
                update(_MODELS)
                .where(_MODELS.c.id == model_id)
                .values(**nothing, description="", purged_at=now())
            )
    return len(rows)


def _erase(registry: Registry, digests: Iterable[str], erase: Any) -> None:
    """Run `erase` in a transaction, and remove the blobs that no row refers to any more."""
    digests = list(digests)
    markers = [registry.blobs.mark(digest) for digest in digests]
    with registry.transaction() as tx:
        erase(tx)
    for digest, marker in zip(digests, markers, strict=True):
        registry.remove_unreferenced(digest)
        registry.blobs.remove_temporary(marker)


def _delete(tx: Transaction, table: Table, condition: ColumnElement[bool]) -> None:
    tx.connection.execute(delete(table).where(condition))


def _rows(registry: Registry, statement: Any) -> list[Any]:
    with registry.reading() as tx:
        return list(tx.connection.execute(statement))
