"""Queries of the table of candidates: versions that are compared with the champion."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Select, insert, select, update

from recalib.errors import ConflictError, NotFoundError
from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now
from recalib.registry.records import Candidate, Model

__all__ = ["Candidates"]

_TABLE = tables.candidates
#: Compared, or proven better and waiting for somebody.
_OPEN = _TABLE.c.verdict.is_(None) | (_TABLE.c.verdict == "proven")


class Candidates(Queries):
    """At most one of a model is undecided at a time; an index sees to it."""

    def undecided(self, model: Model) -> Candidate | None:
        """Return the candidate that is being compared, or None."""
        row = self._connection.execute(_select(model).where(_TABLE.c.verdict.is_(None)))
        found = row.one_or_none()
        return None if found is None else Candidate(**found._mapping)

    def open(self, model: Model) -> Candidate | None:
        """Return the candidate that is being compared, or has proven better and waits; or None."""
        latest = self.latest(model)
        return latest if latest is not None and latest.verdict in (None, "proven") else None

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

    def get(self, model: Model, version: int) -> Candidate:
        """Return a version that is or was a candidate; `NotFoundError` for any other."""
        row = self._connection.execute(_select(model).where(_TABLE.c.version == version))
        found = row.one_or_none()
        if found is None:
            hint = f"no version of {model.name} so numbered was ever one"
            raise NotFoundError("candidate", str(version), hint=hint)
        return Candidate(**found._mapping)

    def drop(self, model: Model, version: int) -> bool:
        """End a candidate that is compared, or has proven better and waits; return whether it did.

        What a worker has read of it before is outdated then: it can promote it no more.
        """
        result = self._connection.execute(
            update(_TABLE)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.version == version,
                _OPEN,
            )
            .values(verdict="dropped", ended_at=now(), turn=_TABLE.c.turn + 1)
        )
        return result.rowcount == 1

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
                _OPEN,
            )
            .values(**values)
        )
        if result.rowcount != 1:
            raise ConflictError(f"candidate {version} of {model.name} was written by another")


def _select(model: Model) -> Select[Any]:
    columns = [column for column in _TABLE.c if column.name != "model_id"]
    return select(*columns).where(_TABLE.c.model_id == model.id)
