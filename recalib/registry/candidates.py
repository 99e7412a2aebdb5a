"""Queries of the table of candidates: versions that are compared with the champion."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Select, insert, select, update

from recalib.errors import ConflictError
from recalib.registry import tables
from recalib.registry.queries import Queries
from recalib.registry.records import Candidate, Model

__all__ = ["Candidates"]

_TABLE = tables.candidates


class Candidates(Queries):
    """At most one of a model is undecided at a time; an index sees to it."""

    def undecided(self, model: Model) -> Candidate | None:
        """Return the candidate that is being compared, or None."""
        row = self._connection.execute(_select(model).where(_TABLE.c.verdict.is_(None)))
        found = row.one_or_none()
        return None if found is None else Candidate(**found._mapping)

    def latest(self, model: Model) -> Candidate | None:
        """Return the candidate that began last, or None before the first."""
        row = self._connection.execute(_select(model).order_by(_TABLE.c.version.desc()).limit(1))
        found = row.one_or_none()
        return None if found is None else Candidate(**found._mapping)

    def add(self, model: Model, candidate: Candidate) -> None:
        """Begin to compare a version; `ConflictError` where another is being compared."""
        self._insert(
            insert(_TABLE).values(model_id=model.id, **asdict(candidate)),
            conflict=f"{model.name} has a candidate already",
        )

    def save(self, model: Model, candidate: Candidate) -> None:
        """Write the candidate's next turn; `ConflictError` where another has written it."""
        values = asdict(candidate)
        version = values.pop("version")
        result = self._connection.execute(
            update(_TABLE)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _TABLE.c.turn == candidate.turn - 1,
                _TABLE.c.verdict.is_(None),
            )
            .values(**values)
        )
        if result.rowcount != 1:
            raise ConflictError(f"candidate {version} of {model.name} was written by another")


def _select(model: Model) -> Select[Any]:
    columns = [column for column in _TABLE.c if column.name != "model_id"]
    return select(*columns).where(_TABLE.c.model_id == model.id)
