"""Queries of the table of predictions whose labels have come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    CursorResult,
    bindparam,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from recalib.prediction_ids import Prediction
from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now
from recalib.registry.records import LabelledPrediction, Model

__all__ = ["LabelColumns", "Labels"]

_TABLE = tables.labels
_KEY = ["model_id", "version", "predicted_at", "digest"]
#: What a row is given; the rest is the same in all.
_GIVEN = [*_KEY, "raw_confidence", "confidence", "predicted", "label", "segment"]
#: After every time that there is.
_NEVER = 1e300
#: Rows that are fetched at once.
_PART = 10_000
Values = NDArray[np.float64]
#: Rows are kept for longer than their ids are accepted, so that none is accepted twice.
_SLACK_SECONDS = 3600.0


class LabelColumns(NamedTuple):
    """Labelled predictions in the order in which they were made, (N,) each."""

    #: Of the model's segments, from 1; 0 for the rest.
    segment: Values
    confidence: Values
    #: Zeros and ones.
    correct: Values
    predicted_at: Values
    labelled_at: Values


class Labels(Queries):
    """Labelled predictions; the first label of each stands."""

    def add(self, model: Model, labelled: Sequence[tuple[Prediction, int]]) -> list[int | None]:
        """Add labels in their order; return for each what stood before it, None where it is new.

        Whoever comes first is decided by the table's key, for batches of several processes too. A
        label other than the one that stands leaves nothing but the mark that there was one.
        """
        first: dict[bytes, tuple[Prediction, int]] = {}
        for prediction, label in labelled:
            first.setdefault(prediction.digest, (prediction, label))
        returned = self._upsert(model, first.values())
        standing = {digest: label for digest, (_, label) in first.items()} | returned
        # What was there before with the same label is not returned.
        new = {digest for digest, label in returned.items() if first[digest][1] == label}
        stood: list[int | None] = []
        later: dict[bytes, tuple[Prediction, int]] = {}
        for prediction, label in labelled:
            digest = prediction.digest
            stood.append(None if digest in new else standing[digest])
            new.discard(digest)
            if label != standing[digest] and first[digest][1] == standing[digest]:
                later.setdefault(digest, (prediction, label))
        if later:
            self._upsert(model, later.values())
        return stood

    def between(
        self, model: Model, version: int, start: float, end: float
    ) -> list[LabelledPrediction]:
        """Return what was predicted from `start` until before `end`, in that order."""
        columns = [column for column in _TABLE.c if column.name != "model_id"]
        rows = self._connection.execute(
            select(*columns)
            .where(*_between(model, version, start, end))
            .order_by(_TABLE.c.predicted_at, _TABLE.c.digest)
        )
        return [LabelledPrediction(**row._mapping) for row in rows]

    def columns(self, model: Model, version: int, start: float, end: float) -> LabelColumns:
        """Return the same as `between`, in columns, of what a calibration error is made of."""
        names = ("segment", "confidence", "correct", "predicted_at", "labelled_at")
        correct = (_TABLE.c.predicted == _TABLE.c.label).label("correct")
        columns = [correct if name == "correct" else _TABLE.c[name] for name in names]
        rows = self._connection.execute(
            select(*columns)
            .where(*_between(model, version, start, end))
            .order_by(_TABLE.c.predicted_at, _TABLE.c.digest),
            # A row of Python's objects is ten times as large as its numbers.
            execution_options={"yield_per": _PART},
        )
        parts = [np.zeros((0, len(names)))]
        parts += [np.array([tuple(row) for row in part], np.float64) for part in rows.partitions()]
        return LabelColumns(*np.concatenate(parts).T)

    def by_digest(
        self, model: Model, version: int, start: float, end: float, maturity_seconds: float
    ) -> dict[bytes, tuple[float, int]]:
        """Return time and label of predictions from `start` until before `end`, by their digests.

        Of those whose labels came within `maturity_seconds`.
        """
        rows = self._connection.execute(
            select(_TABLE.c.digest, _TABLE.c.predicted_at, _TABLE.c.label).where(
                *_between(model, version, start, end),
                _TABLE.c.labelled_at - _TABLE.c.predicted_at <= maturity_seconds,
            )
        )
        return {bytes(row.digest): (row.predicted_at, row.label) for row in rows}

    def first(self, model: Model, version: int, since: float) -> float | None:
        """Return when the first labelled prediction from `since` on was made, None without any."""
        found: float | None = self._connection.scalar(
            select(_TABLE.c.predicted_at)
            .where(*_between(model, version, since, _NEVER))
            .order_by(_TABLE.c.predicted_at)
            .limit(1)
        )
        return found

    def clock(self) -> float:
        """Return the time now, by the clock that labels are late by."""
        return float(self._connection.execute(select(now())).scalar_one())

    def purge(self, lifetime_seconds: float, most: int = 10_000) -> int:
        """Forget rows whose ids have expired, not many more than `most`; return how many.

        Whoever wants all forgotten goes on until it is 0, each in a transaction of its own: one
        that takes long keeps SQLite's other writers waiting.
        """
        before = self.clock() - (lifetime_seconds + _SLACK_SECONDS)
        versions = tables.calibrators
        forgotten = 0
        for model_id, version in self._connection.execute(
            select(versions.c.model_id, versions.c.version)
        ).all():
            forgotten += self._purge_version(model_id, version, before, most - forgotten)
            if forgotten >= most:
                break
        return forgotten

    def _purge_version(self, model_id: int, version: int, before: float, most: int) -> int:
        old = (
            _TABLE.c.model_id == model_id,
            _TABLE.c.version == version,
            _TABLE.c.predicted_at < before,
        )
        # The time of the last row to go, since neither database can delete the first so many.
        until = self._connection.scalar(
            select(_TABLE.c.predicted_at)
            .where(*old)
            .order_by(_TABLE.c.predicted_at)
            .offset(most - 1)
            .limit(1)
        )
        statement = delete(_TABLE).where(*old)
        if until is not None:
            statement = statement.where(_TABLE.c.predicted_at <= until)
        return int(self._connection.execute(statement).rowcount)

    def _upsert(self, model: Model, labelled: Iterable[tuple[Prediction, int]]) -> dict[bytes, int]:
        """Add rows, each of another prediction; return the labels that stand, but for repetitions.

        A row that is there with another label is marked, and its own label returned; one that is
        there with the same label is not returned.
        """
        rows = [
            {
                "model_id": model.id,
                "version": prediction.version,
                "predicted_at": prediction.made_at,
                "digest": prediction.digest,
                "raw_confidence": prediction.raw_confidence,
                "confidence": prediction.confidence,
                "predicted": prediction.predicted,
                "label": label,
                "segment": prediction.segment,
            }
            for prediction, label in labelled
        ]
        # In one order for all: batches with the same ids would else wait for each other in a
        # circle.
        rows.sort(key=itemgetter(*_KEY))
        if not rows:
            return {}
        result = _executed(self._connection, rows)
        return {bytes(row.digest): int(row.label) for row in result}


def _between(model: Model, version: int, start: float, end: float) -> list[ColumnElement[bool]]:
    return [
        _TABLE.c.model_id == model.id,
        _TABLE.c.version == version,
        _TABLE.c.predicted_at >= start,
        _TABLE.c.predicted_at < end,
    ]


def _executed(connection: Connection, rows: list[dict[str, Any]]) -> CursorResult[Any]:
    """Run the insert of `rows` in the way that is quick in the connection's database."""
    same = {"disputed": literal(False), "labelled_at": now()}
    if connection.dialect.name == "sqlite":
        values = sqlite.insert(_TABLE).values(same)
        return connection.execute(_marking(values), rows)
    # An array a column is one parameter, where rows of values are thousands: a sixth of the time.
    arrays = [func.unnest(bindparam(name, type_=ARRAY(_TABLE.c[name].type))) for name in _GIVEN]
    names = [*_GIVEN, *same]
    selected = postgresql.insert(_TABLE).from_select(names, select(*arrays, *same.values()))
    return connection.execute(
        _marking(selected), {name: [row[name] for row in rows] for name in _GIVEN}
    )


def _marking(statement: Any) -> Any:
    """Return an insert that marks, and returns too, rows that are there with another label."""
    return statement.on_conflict_do_update(
        index_elements=_KEY,
        set_={"disputed": True},
        where=_TABLE.c.label != statement.excluded.label,
    ).returning(_TABLE.c.digest, _TABLE.c.label)
