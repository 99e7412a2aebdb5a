"""Queries of the tables `aliases` and `alias_changes`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Select, delete, insert, literal, select, update

from recalib.core.resource_names import check_alias, is_name
from recalib.errors import ConflictError, NotFoundError
from recalib.registry import tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries, columns_without, select_page
from recalib.registry.clock import now
from recalib.registry.events import Events
from recalib.registry.models import Models
from recalib.registry.notifications import notify
from recalib.registry.records import Alias, AliasChange, ExpectedVersion, Model

#: The alias that serves by default.
CHAMPION = "champion"

_ALIAS = tables.aliases
_CHANGE = tables.alias_changes
_REVISION = tables.alias_revision
_TOMBSTONE = tables.tombstones
_COLUMNS = (
    _ALIAS.c.alias, _ALIAS.c.version, _ALIAS.c.revision,
    _CHANGE.c.actor, _CHANGE.c.reason, _CHANGE.c.changed_at,
)  # fmt: skip


class Aliases(Queries):
    """Names that point at versions of a model's calibrators; `champion` serves by default."""

    def set(
        self,
        model: Model,
        alias: str,
        version: int,
        actor: str,
        reason: str,
        expected: ExpectedVersion | None = None,
    ) -> Alias:
        """Point `alias` at `version` and record the change; do nothing if it already points there.

        Raises
        ------
        NotFoundError: the version does not exist, or the model was deleted meanwhile.
        ConflictError: the alias does not point at `expected`.
        """
        check_alias("alias", alias)
        Models(self._connection).hold(model)
        revision = self.lock_revision() + 1
        self._check_version(model, version)
        before = self.find(model, alias)
        current = None if before is None else before.version
        if expected is not None and current != expected.version:
            raise ConflictError(
                f"alias {alias!r} of model {model.name!r} points at version {current}, "
                f"not at {expected.version} as expected"
            )
        if before is not None and before.version == version:
            return before
        self._record(revision, model, alias, current, version, actor, reason)
        change = f"version {version}" if current is None else f"version {current} to {version}"
        detail = f"{change}: {reason}" if reason else change
        Audit(self._connection).record(actor, "set_alias", model.name, alias, detail)
        data = {"alias": alias, "version": version, "from_version": current}
        data |= {"actor": actor, "reason": reason}
        Events(self._connection).record("alias.changed", model.name, data)
        self._point(model, alias, version, revision, new=before is None)
        return self.get(model, alias)

    def delete(self, model: Model, alias: str, actor: str, *, force: bool = False) -> None:
        """Delete an alias; servers that poll stop to serve under it.

        Raises
        ------
        NotFoundError: there is no such alias.
        ConflictError: it is the champion, and `force` is not given.
        """
        Models(self._connection).hold(model)
        revision = self.lock_revision() + 1
        before = self.get(model, alias)
        if alias == CHAMPION and not force:
            raise ConflictError(
                f"model {model.name!r} serves version {before.version} as its champion; point the "
                "alias at another version, or delete it with `force`: then it has no calibrator"
            )
        where = (_ALIAS.c.model_id == model.id, _ALIAS.c.alias == alias)
        self._connection.execute(delete(_ALIAS).where(*where))
        self._record(revision, model, alias, before.version, None, actor, "deleted")
        self._bury(revision, model.name, alias)
        data = {"alias": alias, "version": before.version, "actor": actor}
        Events(self._connection).record("alias.deleted", model.name, data)
        Audit(self._connection).record(
            actor, "delete_alias", model.name, alias, f"version {before.version}"
        )

    def bury(self, model: str, selector: str | None = None) -> None:
        """Let servers stop to serve a version, or everything under the name of a model."""
        revision = self.lock_revision() + 1
        self._raise_revision(revision)
        self._bury(revision, model, selector)

    def buried_since(self, revision: int) -> list[tuple[str, str | None]]:
        """Return what is no longer served since `revision`: models, each with a version or alias.

        None is everything under that name.
        """
        columns = select(_TOMBSTONE.c.model, _TOMBSTONE.c.selector)
        rows = self._connection.execute(columns.where(_TOMBSTONE.c.revision > revision))
        return [(model, selector) for model, selector in rows]

    def lock_revision(self) -> int:
        """Return the revision; other changes of aliases wait until the transaction ends.

        The revision is a counter in one row, locked until the transaction commits, so revisions
        become visible in order. With a sequence, 6 may become visible before 5, and a server that
        polls `revision` would never see 5. The same lock keeps two transactions from both inserting
        a new alias, `from_version` correct, and deleted versions without aliases.
        """
        return int(self._connection.scalars(select(_REVISION.c.revision).with_for_update()).one())

    def find(self, model: Model, alias: str) -> Alias | None:
        """Return the alias, or None."""
        if not is_name(alias):
            return None
        return self._find(Alias, _select(model).where(_ALIAS.c.alias == alias))

    def get(self, model: Model, alias: str) -> Alias:
        """Return the alias, or raise `NotFoundError`."""
        of_alias = _select(model).where(_ALIAS.c.alias == alias)
        return self._get(Alias, of_alias, "alias", alias, f"the model is {model.name}")

    def all(self, model: Model) -> list[Alias]:
        """Return all aliases of the model, sorted by name."""
        return self._read(Alias, _select(model).order_by(_ALIAS.c.alias))

    def page(self, model: Model, after: str | None, limit: int) -> list[Alias]:
        """Return up to `limit` aliases sorted by name, after the name `after`."""
        return self._read(Alias, select_page(_select(model), _ALIAS.c.alias, limit, after))

    def history(
        self, model: Model, alias: str, limit: int = 100, after: int | None = None
    ) -> list[AliasChange]:
        """Return up to `limit` changes, newest first, older than revision `after`."""
        if not is_name(alias):
            return []
        columns = (*columns_without(_CHANGE, "model_id"), literal(model.name).label("model"))
        of_alias = (_CHANGE.c.model_id == model.id, _CHANGE.c.alias == alias)
        statement = select(*columns).where(*of_alias)
        page = select_page(statement, _CHANGE.c.revision, limit, after, newest_first=True)
        changes = self._read(AliasChange, page)
        return [replace(change, to_version=change.to_version or None) for change in changes]

    def changed_since(self, revision: int) -> list[Alias]:
        """Return the aliases of all models that were last changed after `revision`."""
        models = tables.models
        unchanged = (
            (_ALIAS.c.model_id == _CHANGE.c.model_id)
            & (_ALIAS.c.alias == _CHANGE.c.alias)
            & (_ALIAS.c.revision == _CHANGE.c.revision)
        )
        statement = (
            select(models.c.name.label("model"), *_COLUMNS)
            .select_from(_CHANGE)
            .join(_ALIAS, unchanged)
            .join(models, models.c.id == _ALIAS.c.model_id)
            .where(_CHANGE.c.revision > revision)
        )
        return self._read(Alias, statement)

    def newest_champions(self, limit: int) -> list[str]:
        """Return the names of up to `limit` models, those whose champion changed last first."""
        models = tables.models
        statement = (
            select(models.c.name)
            .join(_ALIAS, _ALIAS.c.model_id == models.c.id)
            .where(_ALIAS.c.alias == CHAMPION, models.c.deleted_at.is_(None))
            .order_by(_ALIAS.c.revision.desc())
            .limit(limit)
        )
        return list(self._connection.scalars(statement))

    def revision(self) -> int:
        """Return the number of alias changes of all models; cheap to poll."""
        return int(self._connection.scalars(select(_REVISION.c.revision)).one())

    def _check_version(self, model: Model, version: int) -> None:
        calibrators = tables.calibrators
        row = self._connection.scalar(
            select(calibrators.c.version).where(
                calibrators.c.model_id == model.id,
                calibrators.c.version == version,
                calibrators.c.deleted_at.is_(None),
            )
        )
        if row is None:
            raise missing_version(model, version)

    def _record(
        self,
        revision: int,
        model: Model,
        alias: str,
        from_version: int | None,
        to_version: int | None,
        actor: str,
        reason: str,
    ) -> None:
        """Add a change to the history, with the next revision."""
        self._raise_revision(revision)
        self._connection.execute(
            insert(_CHANGE).values(
                revision=revision,
                model_id=model.id,
                alias=alias,
                from_version=from_version,
                to_version=to_version or 0,
                actor=actor,
                reason=reason,
                changed_at=now(),
            )
        )

    def _raise_revision(self, revision: int) -> None:
        self._connection.execute(update(_REVISION).values(revision=revision))
        notify(self._connection)

    def _bury(self, revision: int, model: str, selector: str | None) -> None:
        values = {"revision": revision, "model": model, "selector": selector}
        self._connection.execute(insert(_TOMBSTONE).values(values))

    def _point(self, model: Model, alias: str, version: int, revision: int, *, new: bool) -> None:
        if new:
            statement: Any = insert(_ALIAS).values(model_id=model.id, alias=alias)
        else:
            statement = update(_ALIAS).where(_ALIAS.c.model_id == model.id, _ALIAS.c.alias == alias)
        self._connection.execute(statement.values(version=version, revision=revision))


def missing_version(model: Model, version: int) -> NotFoundError:
    """Return the error about a version that the model does not have."""
    return NotFoundError("version", str(version), hint=f"{model.name} has no such version")


def _select(model: Model) -> Select[Any]:
    return (
        select(literal(model.name).label("model"), *_COLUMNS)
        .join(_CHANGE, _CHANGE.c.revision == _ALIAS.c.revision)
        .where(_ALIAS.c.model_id == model.id)
    )
