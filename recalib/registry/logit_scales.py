"""Queries of the table `logit_scales`: what the logits of a model looked like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, exists, insert, or_, select, update

from recalib.errors import ExistsError
from recalib.registry import tables
from recalib.registry.aliases import CHAMPION
from recalib.registry.base import Queries
from recalib.registry.datasets import id_of
from recalib.registry.records import Model
from recalib.stats.logit_scale import Finding, LogitScale, compare_scales

_TABLE = tables.logit_scales
#: The id of no data set, for live traffic.
_TRAFFIC = 0
#: Rows of live traffic from which all counts are halved, so that new traffic replaces old.
_MAX_ROWS = 1_000_000


class LogitScales(Queries):
    """Summaries of data sets, and of the live traffic of models."""

    def put(self, model: Model, dataset: str, scale: LogitScale) -> None:
        """Store the summary of a data set, in place of an earlier one."""
        self._put(model.id, self._connection.execute(id_of(model, dataset)).scalar_one(), scale)

    def judge(self, model: Model, dataset: str, scale: LogitScale) -> list[Finding]:
        """Compare a data set with the history of its model, and keep its summary."""
        findings = compare_scales(scale, self.history(model, dataset))
        refused = any(finding.refuses for finding in findings)
        self.put(model, dataset, msgspec.structs.replace(scale, refused=refused))
        return findings

    def find_refused(self, model: Model, version: int) -> str | None:
        """Return the refused data set that a version was fitted on, unless it was a champion."""
        versions, datasets = tables.calibrators, tables.datasets
        statement = (
            select(datasets.c.name)
            .join(versions, versions.c.dataset_id == datasets.c.id)
            .join(_TABLE, _TABLE.c.dataset_id == datasets.c.id)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.summary["refused"].as_boolean(),
                versions.c.model_id == model.id,
                versions.c.version == version,
                ~_was_champion(),
            )
        )
        return self._connection.scalar(statement)

    def history(self, model: Model, dataset: str | None = None) -> list[LogitScale]:
        """Return the summaries of live traffic and of the data sets of a model but `dataset`.

        A data set that was refused counts if a version of it became the champion nevertheless.
        """
        statement = select(_TABLE.c.summary).where(
            _TABLE.c.model_id == model.id,
            or_(~_TABLE.c.summary["refused"].as_boolean(), _was_champion()),
        )
        if dataset is not None:
            own = id_of(model, dataset).scalar_subquery()
            statement = statement.where(_TABLE.c.dataset_id != own)
        return [_scale_of(row) for row in self._connection.scalars(statement)]

    def add_traffic(self, spreads: Mapping[int, Mapping[int, int]]) -> None:
        """Add served rows by spread (`LogitScale.spreads`), by the id of their model."""
        for model_id in sorted(spreads):  # in one order, so that processes do not deadlock
            before = self._locked(model_id, _TRAFFIC)
            counts = {} if before is None else dict(before.spreads)
            for bin, count in spreads[model_id].items():
                counts[bin] = counts.get(bin, 0) + count
            if sum(counts.values()) > _MAX_ROWS:
                counts = {bin: count // 2 for bin, count in counts.items() if count > 1}
            self._put(model_id, _TRAFFIC, LogitScale(counts))

    def _locked(self, model_id: int, dataset_id: Any) -> LogitScale | None:
        statement = select(_TABLE.c.summary).where(
            _TABLE.c.model_id == model_id, _TABLE.c.dataset_id == dataset_id
        )
        row = self._connection.scalar(statement.with_for_update())
        return None if row is None else _scale_of(row)

    def _put(self, model_id: int, dataset_id: Any, scale: LogitScale) -> None:
        key = {"model_id": model_id, "dataset_id": dataset_id}
        values = {"summary": msgspec.to_builtins(scale, str_keys=True)}
        try:
            self._insert(insert(_TABLE).values(**key, **values), conflict="")
        except ExistsError:
            where = (_TABLE.c.model_id == model_id, _TABLE.c.dataset_id == dataset_id)
            self._connection.execute(update(_TABLE).where(*where).values(**values))


def _was_champion() -> ColumnElement[bool]:
    """Return whether a version of the data set of a summary was the champion of its model."""
    versions, changes = tables.calibrators.alias(), tables.alias_changes
    return exists().where(
        versions.c.model_id == _TABLE.c.model_id,
        versions.c.dataset_id == _TABLE.c.dataset_id,
        changes.c.model_id == versions.c.model_id,
        changes.c.alias == CHAMPION,
        changes.c.to_version == versions.c.version,
    )


def _scale_of(summary: Any) -> LogitScale:
    return msgspec.convert(summary, LogitScale, strict=False, str_keys=True)
