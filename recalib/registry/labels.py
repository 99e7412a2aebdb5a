"""Queries of the table `labels`: predictions with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from recalib.core.prediction_ids import Prediction
from recalib.registry import monitoring_tables, tables
from recalib.registry.array_parameters import unnest
from recalib.registry.base import Queries
from recalib.registry.clock import now, read_clock
from recalib.registry.records import Model

_TABLE = monitoring_tables.labels
_KEY = ["model_id", "version", "predicted_at", "digest"]
#: Columns with values per row; the others are the same in all rows.
_ROW_COLUMNS = [
    *(*_KEY, "raw_confidence", "confidence", "predicted", "label", "segment", "group_number"),
    "adaptation",
]
_LABEL_SET = "label_set"
_Row = tuple[Any, ...]
#: Later than any time.
_NEVER = 1e300
#: Rows per fetch.
_PART = 10_000
Values = NDArray[np.float64]
#: Rows outlive their ids by this time, so that no id is accepted twice.
_SLACK_SECONDS = 3600.0


class LabelColumns(NamedTuple):
    """Labelled predictions in the order in which they were made, (N,) each."""

    #: The number of the segment, from 1; 0 for none.
    segment: Values
    confidence: Values
    #: Class indices.
    predicted: Values
    label: Values
    predicted_at: Values
    labelled_at: Values
    #: Numbers of groups of dependent rows; 0 for none.
    group: Values

    @property
    def correct(self) -> Values:
        """Zeros and ones, (N,)."""
        return (self.predicted == self.label).astype(np.float64)

    def select(self, index: NDArray[Any]) -> LabelColumns:
        """Return the rows of an index or a mask."""
        return LabelColumns(*(column[index] for column in self))


class Labels(Queries):
    """Labelled predictions; the first label of a prediction is final."""

    def add(
        self,
        model: Model,
        labelled: Sequence[tuple[Prediction, int]],
        label_sets: Mapping[bytes, bytes] | None = None,
    ) -> list[int | None]:
        """Add labels in order; return the earlier label of each prediction, None if there is none.

        The primary key decides which label is first, also between processes. A different later
        label only sets the flag `disputed`.

        Parameters
        ----------
        label_sets: bits of all labels of multilabel rows, by digest; of other rows none are stored.
        """
        first: dict[bytes, tuple[Prediction, int]] = {}
        for prediction, label in labelled:
            first.setdefault(prediction.digest, (prediction, label))
        returned = self._upsert(model, first.values(), label_sets)
        final = {digest: label for digest, (_, label) in first.items()} | returned
        # The upsert does not return rows that already exist with the same label.
        new = {digest for digest, label in returned.items() if first[digest][1] == label}
        earlier: list[int | None] = []
        later: dict[bytes, tuple[Prediction, int]] = {}
        for prediction, label in labelled:
            digest = prediction.digest
            earlier.append(None if digest in new else final[digest])
            new.discard(digest)
            if label != final[digest] and first[digest][1] == final[digest]:
                later.setdefault(digest, (prediction, label))
        if later:
            self._upsert(model, later.values(), label_sets)
        return earlier

    def columns(self, model: Model, version: int, start: float, end: float) -> LabelColumns:
        """Return predictions made from `start` until before `end`, by time."""
        names = ("segment", "confidence", "predicted", "label", "predicted_at", "labelled_at")
        columns = [*(_TABLE.c[name] for name in names), _TABLE.c.group_number]
        rows = self._connection.execute(
            select(*columns)
            .where(*_in_interval(model, version, start, end))
            .order_by(_TABLE.c.predicted_at, _TABLE.c.digest),
            # A row of Python objects takes ten times the memory of its numbers.
            execution_options={"yield_per": _PART},
        )
        parts = [np.zeros((0, len(columns)))]
        parts += [np.array([tuple(row) for row in part], np.float64) for part in rows.partitions()]
        return LabelColumns(*np.concatenate(parts).T)

    def by_digest(
        self, model: Model, version: int, start: float, end: float, maturity_seconds: float
    ) -> dict[bytes, tuple[float, int | bytes, int, int, int, int]]:
        """Return labelled predictions from `start` until before `end`, by digest.

        They have time, label, predicted class, group, state of the adaptation and segment. Only
        predictions whose labels arrived within `maturity_seconds`. The label of a multilabel row is
        its `label_set`; rows without one are left out.
        """
        label = _TABLE.c.label_set if model.is_multilabel else _TABLE.c.label
        rows = self._connection.execute(
            select(
                _TABLE.c.digest,
                _TABLE.c.predicted_at,
                label.label("known"),
                _TABLE.c.predicted,
                _TABLE.c.group_number,
                _TABLE.c.adaptation,
                _TABLE.c.segment,
            ).where(
                *_in_interval(model, version, start, end),
                _TABLE.c.labelled_at - _TABLE.c.predicted_at <= maturity_seconds,
                label.is_not(None),
            )
        )
        return {bytes(digest): (at, known, *others) for digest, at, known, *others in rows}

    def first(self, model: Model, version: int, since: float) -> float | None:
        """Return the time of the first labelled prediction from `since` on, or None."""
        return self._connection.scalar(
            select(_TABLE.c.predicted_at)
            .where(*_in_interval(model, version, since, _NEVER))
            .order_by(_TABLE.c.predicted_at)
            .limit(1)
        )

    def purge(self, lifetime_seconds: float, max_rows: int = 10_000) -> int:
        """Delete rows with expired ids, about `max_rows` at most; return their number.

        Repeat it until it returns 0 to delete all, each time in a new transaction: a long
        transaction blocks the other writers of SQLite.
        """
        before = read_clock(self._connection) - (lifetime_seconds + _SLACK_SECONDS)
        versions = tables.calibrators
        deleted = 0
        for model_id, version in self._connection.execute(
            select(versions.c.model_id, versions.c.version)
        ).all():
            deleted += self._purge_version(model_id, version, before, max_rows - deleted)
            if deleted >= max_rows:
                break
        return deleted

    def purge_model(self, model: Model, seconds: float, max_rows: int = 10_000) -> int:
        """Delete labels of a model's older predictions, about `max_rows` at most, as `purge`."""
        before = read_clock(self._connection) - (seconds + _SLACK_SECONDS)
        deleted = 0
        for version in range(1, model.latest_version + 1):
            if deleted < max_rows:
                deleted += self._purge_version(model.id, version, before, max_rows - deleted)
        return deleted

    def delete_version(self, model_id: int, version: int, max_rows: int = 10_000) -> int:
        """Delete labels of a version, about `max_rows` at most; return their number."""
        return self._purge_version(model_id, version, _NEVER, max_rows)

    def _purge_version(self, model_id: int, version: int, before: float, max_rows: int) -> int:
        old = (
            _TABLE.c.model_id == model_id,
            _TABLE.c.version == version,
            _TABLE.c.predicted_at < before,
        )
        # The time of the last row to delete: neither database has DELETE with LIMIT.
        until = self._connection.scalar(
            select(_TABLE.c.predicted_at)
            .where(*old)
            .order_by(_TABLE.c.predicted_at)
            .offset(max_rows - 1)
            .limit(1)
        )
        statement = delete(_TABLE).where(*old)
        if until is not None:
            statement = statement.where(_TABLE.c.predicted_at <= until)
        return self._execute(statement)

    def _upsert(
        self,
        model: Model,
        labelled: Iterable[tuple[Prediction, int]],
        label_sets: Mapping[bytes, bytes] | None,
    ) -> dict[bytes, int]:
        """Add rows with distinct predictions; return the final labels of new and disputed rows.

        If a row exists with a different label, it is marked as disputed and its label is returned.
        If it exists with the same label, it is not returned.
        """
        rows: list[_Row] = [
            (
                model.id,
                prediction.version,
                prediction.made_at,
                prediction.digest,
                prediction.raw_confidence,
                prediction.confidence,
                prediction.predicted,
                label,
                prediction.segment,
                prediction.group,
                prediction.adaptation,
                *((label_sets.get(prediction.digest),) if label_sets else ()),
            )
            for prediction, label in labelled
        ]
        # One lock order for all: two batches with the same ids would otherwise deadlock.
        rows.sort()
        if not rows:
            return {}
        names = [*_ROW_COLUMNS, _LABEL_SET] if label_sets else _ROW_COLUMNS
        upserted = _execute_upsert(self._connection, names, rows)
        return {bytes(digest): label for digest, label in upserted}


def _in_interval(model: Model, version: int, start: float, end: float) -> list[ColumnElement[bool]]:
    return [
        _TABLE.c.model_id == model.id,
        _TABLE.c.version == version,
        _TABLE.c.predicted_at >= start,
        _TABLE.c.predicted_at < end,
    ]


def _execute_upsert(
    connection: Connection, names: list[str], rows: list[_Row]
) -> Iterable[tuple[bytes, int]]:
    """Run the upsert of `rows` in the way that is fast in the database."""
    unchanged: dict[str, Any] = {"disputed": literal(False), "labelled_at": now()}
    if connection.dialect.name == "sqlite":
        upsert = _mark_disputed(sqlite.insert(_TABLE).values(unchanged))
        values = [dict(zip(names, row, strict=True)) for row in rows]
        return ((row.digest, row.label) for row in connection.execute(upsert, values))
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays, parameters = unnest(_TABLE, columns)
    selected = arrays.add_columns(*unchanged.values())
    insert = postgresql.insert(_TABLE).from_select([*names, *unchanged], selected)
    upserted = _mark_disputed(insert).cte()
    # One row of two arrays: thousands of rows take a tenth of the time of the whole batch.
    aggregated = select(func.array_agg(upserted.c.digest), func.array_agg(upserted.c.label))
    digests, labels = connection.execute(aggregated, parameters).one()
    return zip(digests or (), labels or (), strict=True)


def _mark_disputed(statement: Any) -> Any:
    """Return an insert that marks and returns existing rows with a different label."""
    return statement.on_conflict_do_update(
        index_elements=_KEY,
        set_={"disputed": True},
        where=_TABLE.c.label != statement.excluded.label,
    ).returning(_TABLE.c.digest, _TABLE.c.label)
