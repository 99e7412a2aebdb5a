"""Queries of the table `candidates`: versions that are compared with the champion."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, select, update

from recalib.errors import ConflictError
from recalib.registry import monitoring_tables
from recalib.registry.base import Queries, columns_without
from recalib.registry.clock import now
from recalib.registry.records import Challenger, Model

_TABLE = monitoring_tables.candidates
#: In comparison, or proven better and waiting for a decision.
_OPEN = _TABLE.c.verdict.is_(None) | (_TABLE.c.verdict == "proven")


class Candidates(Queries):
    """At most one candidate of a model is undecided at a time; a unique index ensures this."""

    def undecided(self, model: Model) -> Challenger | None:
        """Return the candidate that is being compared, or None."""
        return self._find(Challenger, _select(model).where(_TABLE.c.verdict.is_(None)))

    def open(self, model: Model) -> Challenger | None:
        """Return the candidate in comparison, or proven and waiting for promotion; or None."""
        latest = self.latest(model)
        return latest if latest is not None and latest.verdict in (None, "proven") else None

    def latest(self, model: Model) -> Challenger | None:
        """Return the newest candidate, or None."""
        return self._find(Challenger, _select(model).order_by(_TABLE.c.version.desc()).limit(1))

    def against(self, model: Model, champion: int) -> list[Challenger]:
        """Return the candidates that were compared with this champion, oldest first."""
        of_champion = _select(model).where(_TABLE.c.champion == champion)
        return self._read(Challenger, of_champion.order_by(_TABLE.c.version))

    def next_alpha(self, model: Model, champion: int) -> float:
        """Return the error probability of the next comparison with a champion.

        After j − 1 candidates it is α/(j (j + 1)), which sums to α. So however often a champion is
        refitted, the probability is at most α that a candidate that is no better replaces it. A
        candidate stays when an earlier champion serves again, so all later candidates count.
        """
        later = (_TABLE.c.model_id == model.id, _TABLE.c.version > champion)
        number = 1 + (self._connection.scalar(select(func.count()).where(*later)) or 0)
        return model.monitoring.alpha / (number * (number + 1))

    def add(self, model: Model, candidate: Challenger) -> None:
        """Add a candidate; `ConflictError` if another is in comparison."""
        self._insert(
            insert(_TABLE).values(model_id=model.id, **asdict(candidate)),
            conflict=f"{model.name} has a candidate already",
        )

    def get(self, model: Model, version: int) -> Challenger:
        """Return the candidate of a version; `NotFoundError` if it never was a candidate."""
        of_version = _select(model).where(_TABLE.c.version == version)
        hint = f"this version of {model.name} never was a candidate"
        return self._get(Challenger, of_version, "candidate", str(version), hint)

    def drop(self, model: Model, version: int) -> bool:
        """Drop an open candidate; return whether it was open.

        The new turn makes earlier reads of a worker outdated, so it cannot promote the candidate.
        """
        values = {"verdict": "dropped", "ended_at": now(), "turn": _TABLE.c.turn + 1}
        return self._update(model, version, values)

    def save(self, model: Model, candidate: Challenger) -> None:
        """Write the next turn of the candidate; `ConflictError` if another process was first."""
        values = asdict(candidate)
        version = values.pop("version")
        if not self._update(model, version, values, _TABLE.c.turn == candidate.turn - 1):
            raise ConflictError(
                f"candidate {version} of {model.name} was changed by another process"
            )

    def _update(
        self, model: Model, version: int, values: dict[str, Any], *where: ColumnElement[bool]
    ) -> bool:
        """Change an open candidate; return whether it was open."""
        of_version = (_TABLE.c.model_id == model.id, _TABLE.c.version == version)
        return self._execute(update(_TABLE).where(*of_version, _OPEN, *where).values(values)) == 1


def _select(model: Model) -> Select[Any]:
    return select(*columns_without(_TABLE, "model_id")).where(_TABLE.c.model_id == model.id)
