"""What can be done with calibrators and their aliases; no transport here."""

from __future__ import annotations

import re
from functools import partial

from anyio import to_thread

from recalib import calibrator as calibrators
from recalib.errors import InputError
from recalib.fitting.fit import resolve_fit
from recalib.registry import Model, Registry, Transaction
from recalib.registry.resource_names import check_alias
from service.access.authenticator import current_principal
from service.calibrators.schemas import (
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    AliasSet,
    Calibrator,
    CalibratorCreate,
    CalibratorPage,
)
from service.idempotency import once
from service.jobs.schemas import Job
from service.pagination import decode_cursor, next_cursor
from service.predict.loaded_calibrators import LoadedCalibrators
from service.times import iso

__all__ = [
    "FIT",
    "create_calibrator",
    "get_alias_history",
    "get_calibrator",
    "get_onnx",
    "get_parameters",
    "list_aliases",
    "list_calibrators",
    "request_fit",
    "set_alias",
]

#: The kind of job that fits a calibrator.
FIT = "fit"


def create_calibrator(tx: Transaction, model: str, fit: CalibratorCreate, key: str | None) -> Job:
    """Ask for a fit.

    Raises
    ------
    InputError: an unknown map, objective or option.
    NotFoundError: no such model or data set.
    ConflictError: `key` came with another request.
    """
    owner = tx.models.get(model)
    scope = f"create_calibrator {model}"
    return once(tx, key, scope, fit, 202, Job, lambda: request_fit(tx, owner, fit))


def request_fit(tx: Transaction, model: Model, fit: CalibratorCreate) -> Job:
    """Enqueue a fit; what can be checked now is, so that a typo does not wait in a queue.

    Raises
    ------
    InputError: an unknown map, objective or option.
    NotFoundError: no such data set.
    """
    resolve_fit(fit.map, fit.objective, fit.options)
    tx.datasets.get(model, fit.dataset)
    job = tx.jobs.enqueue(FIT, {"model": model.name, **fit.model_dump()}, model=model)
    said = f"{fit.map} by {fit.objective} on {fit.dataset}"
    tx.audit.record(current_principal().name, "create_calibrator", model.name, job.id, said)
    return Job.of(job)


def list_calibrators(tx: Transaction, model: str, limit: int, cursor: str | None) -> CalibratorPage:
    """Return a page of a model's calibrators, by version."""
    owner = tx.models.get(model)
    found = tx.calibrators.page(owner, _version_cursor(cursor), limit + 1)
    more = next_cursor(found, limit, lambda one: str(one.version))
    return CalibratorPage(items=[Calibrator.of(one) for one in found[:limit]], next_cursor=more)


def get_calibrator(tx: Transaction, model: str, version: int) -> Calibrator:
    """Return a calibrator's card, or raise `NotFoundError`."""
    return Calibrator.of(tx.calibrators.get(tx.models.get(model), version))


def get_parameters(registry: Registry, model: str, version: int) -> bytes:
    """Return the parameter file, or raise `NotFoundError`."""
    with registry.reading() as tx:
        return tx.calibrators.parameters(tx.models.get(model), version)


def get_onnx(registry: Registry, model: str, version: int) -> bytes:
    """Return the map as an ONNX graph, or raise `NotFoundError`."""
    return calibrators.Calibrator.from_bytes(get_parameters(registry, model, version)).to_onnx()


def list_aliases(tx: Transaction, model: str) -> AliasList:
    """Return all of a model's aliases."""
    owner = tx.models.get(model)
    return AliasList(items=[Alias.of(one) for one in tx.aliases.all(owner)])


async def set_alias(
    registry: Registry,
    loaded: LoadedCalibrators,
    model: str,
    alias: str,
    change: AliasSet,
    actor: str,
    key: str | None,
) -> Alias:
    """Promote or roll back: every request after the answer sees the new version.

    Said again with the same key, it moves nothing, though somebody has rolled back meanwhile.

    Raises
    ------
    InputError: an alias that is no name.
    NotFoundError: no such model or version.
    ConflictError: `key` came with another request.
    CorruptError: the version's parameters are damaged, so that it could not serve.
    """
    check_alias("alias", alias)

    def act() -> Alias:
        calibrators.Calibrator.from_bytes(get_parameters(registry, model, change.version))
        with registry.transaction() as tx:
            owner = tx.models.get(model)
            point = partial(tx.aliases.set, owner, alias, change.version, actor, change.reason)
            scope = f"set_alias {model} {alias}"
            return once(tx, key, scope, change, 200, Alias, lambda: Alias.of(point()))

    answer = await to_thread.run_sync(act)
    # This process at once; the others within `refresh_seconds`.
    await to_thread.run_sync(loaded.refresh)
    return answer


def get_alias_history(tx: Transaction, model: str, alias: str, limit: int) -> AliasHistory:
    """Return who moved an alias, when, where to and why; newest first."""
    changes = tx.aliases.history(tx.models.get(model), alias, limit)
    return AliasHistory(
        items=[
            AliasChange(
                at=iso(one.changed_at),
                actor=one.actor,
                from_version=one.from_version,
                to_version=one.to_version,
                reason=one.reason,
            )
            for one in changes
        ]
    )


def _version_cursor(cursor: str | None) -> int | None:
    position = decode_cursor(cursor)
    if position is not None and not re.fullmatch(r"\d{1,9}", position):
        raise InputError("cursor", found="something else", accepted="next_cursor of a page")
    return None if position is None else int(position)
