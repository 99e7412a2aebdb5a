"""Queries of the table `audit`."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from recalib.contract.events import AuditEntry
from recalib.core.resource_names import is_name
from recalib.core.sanitize import sanitize_line
from recalib.registry import tables
from recalib.registry.base import Queries, select_page
from recalib.registry.clock import now

_TABLE = tables.audit
_MAX_CHARACTERS = 500
#: The action whose last time servers export.
SCHEDULED_BACKUP = "scheduled_backup"


class Audit(Queries):
    """The audit trail: actor, action, object and result.

    An entry is written in the transaction of its action, so neither exists without the other. It
    holds nothing secret: names, versions, ids and reasons.
    """

    def record(
        self,
        actor: str,
        action: str,
        model: str | None,
        target: str,
        detail: str = "",
        result: str = "done",
    ) -> None:
        """Add an entry.

        Parameters
        ----------
        actor: a key's name, `oidc:SUBJECT`, `cli:USER`, `monitor` or a job's worker.
        action: the name of the operation in REST, or a name of the same form.
        model: name of the model, or None; an invalid name is left out.
        target: the object: an alias, a data set, a key, a job.
        result: `done`, or `refused`.
        """
        self._connection.execute(
            insert(_TABLE).values(
                at=now(),
                actor=_plain(actor),
                action=action,
                model=model if model is not None and is_name(model) else None,
                target=_plain(target),
                detail=_plain(detail),
                result=result,
            )
        )

    def page(
        self,
        after: int | None,
        limit: int,
        *,
        actor: str | None = None,
        action: str | None = None,
        model: str | None = None,
    ) -> list[AuditEntry]:
        """Return up to `limit` entries, newest first, older than the entry `after`."""
        statement = select_page(select(_TABLE), _TABLE.c.id, limit, after, newest_first=True)
        for column, value in ((_TABLE.c.actor, actor), (_TABLE.c.action, action)):
            if value is not None:
                statement = statement.where(column == _plain(value))
        if model is not None:
            statement = statement.where(_TABLE.c.model == _plain(model))
        return self._read(AuditEntry, statement)

    def last(self, action: str) -> float | None:
        """Return the time of the last entry of an action that concerns no model, or None."""
        return self._connection.scalar(
            select(_TABLE.c.at)
            .where(_TABLE.c.model.is_(None), _TABLE.c.action == action)
            .order_by(_TABLE.c.id.desc())
            .limit(1)
        )

    def purge(self, older_than_seconds: float) -> int:
        """Delete older entries; return their number."""
        return self._execute(delete(_TABLE).where(_TABLE.c.at < now() - older_than_seconds))


def _plain(text: str) -> str:
    """Return text as one line of bounded length, with control characters escaped."""
    text = sanitize_line(text)
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
