"""Operations on calibrators and their aliases, independent of the transport."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anyio import to_thread

from recalib import calibrator as calibrators
from recalib import registry
from recalib.contract.calibrators import (
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    Calibrator,
    CalibratorPage,
)
from recalib.contract.jobs import Job
from recalib.contract.models import Deletion
from recalib.core.resource_names import check_alias
from recalib.errors import InputError
from recalib.fitting.request import resolve_fit
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import FIT, PUBLISH
from service.access.authenticator import current_principal
from service.calibrators.schemas import AliasSet, CalibratorCreate
from service.calibrators.upload import Upload, check_upload
from service.deletion import delete_once
from service.idempotency import run_once
from service.pagination import decode_number, next_cursor
from service.schemas.details import DetailsUpdate
from service.serving.loaded_calibrators import CHAMPION, LoadedCalibrators
from service.validation_warnings import warnings_of

_UPLOAD_FIELDS = ("parameters", "row_digests")


def create_calibrator(
    registry: Registry, model: str, request: CalibratorCreate, key: str | None
) -> Job:
    """Enqueue a fit, or the publication of an uploaded calibrator.

    The reader process checks a parameter file before this returns.

    Raises
    ------
    InputError: an unknown map, objective or option, or a parameter file that is refused.
    NotFoundError: no such model or data set.
    ConflictError: `key` was used with another request.
    """
    act = request_fit
    if request.parameters is not None:
        with registry.reading() as tx:
            act = partial(request_publication, upload=check_upload(tx.models.get(model), request))
    with registry.transaction() as tx:
        owner = tx.models.get(model)
        tx.models.hold(owner)
        scope = f"create_calibrator {model}"
        return run_once(tx, key, scope, request, 202, Job, lambda: act(tx, owner, request))


def request_fit(tx: Transaction, model: Model, fit: CalibratorCreate) -> Job:
    """Check the request as far as possible without the data, and enqueue a fit job.

    Raises
    ------
    InputError: an unknown map, objective or option, or no data set.
    NotFoundError: the data set does not exist.
    """
    if fit.dataset is None:
        accepted = "the name of a data set to fit on, or the `parameters` of a calibrator"
        raise InputError("dataset", found="none", accepted=accepted)
    if fit.row_digests is not None:
        raise InputError("row_digests", found="no `parameters`", accepted="both, or neither")
    resolve_fit(fit.map, fit.objective, fit.options, model.task)
    tx.datasets.get(model, fit.dataset)
    fields = fit.model_dump(exclude=set(_UPLOAD_FIELDS))
    job = tx.jobs.enqueue(FIT, {"model": model.name, **fields}, model=model)
    detail = f"{fit.map} by {fit.objective} on {fit.dataset}"
    tx.audit.record(current_principal().name, "create_calibrator", model.name, job.id, detail)
    return Job.model_validate(job)


def request_publication(
    tx: Transaction, model: Model, request: CalibratorCreate, upload: Upload
) -> Job:
    """Enqueue the publication of an uploaded calibrator; `NotFoundError` without its data set."""
    if request.dataset is not None:
        tx.datasets.get(model, request.dataset)
    job = tx.jobs.enqueue(
        PUBLISH,
        {"model": model.name, "dataset": request.dataset, "promote": request.promote},
        model=model,
        parameters=upload.parameters,
        row_digests=upload.row_digests,
    )
    detail = f"uploaded {upload.map}, sha256 {upload.digest}"
    tx.audit.record(current_principal().name, "create_calibrator", model.name, job.id, detail)
    return Job.model_validate(job)


def list_calibrators(tx: Transaction, model: str, limit: int, cursor: str | None) -> CalibratorPage:
    """Return a page of a model's calibrators, by version."""
    owner = tx.models.get(model)
    rows = tx.calibrators.page(owner, decode_number(cursor, max_digits=9), limit + 1)
    cursor = next_cursor(rows, limit, lambda row: str(row.version))
    return CalibratorPage(items=[_calibrator(row) for row in rows[:limit]], next_cursor=cursor)


def get_calibrator(tx: Transaction, model: str, version: int) -> Calibrator:
    """Return a calibrator's card, or raise `NotFoundError`."""
    return _calibrator(tx.calibrators.get(tx.models.get(model), version))


def get_parameters(registry: Registry, model: str, version: int) -> bytes:
    """Return the parameter file, or raise `NotFoundError`."""
    with registry.reading() as tx:
        return tx.calibrators.parameters(tx.models.get(model), version)


def get_onnx(registry: Registry, model: str, version: int) -> bytes:
    """Return the map as an ONNX graph, or raise `NotFoundError`."""
    return calibrators.Calibrator.from_bytes(get_parameters(registry, model, version)).to_onnx()


def update_calibrator(
    tx: Transaction, model: str, version: int, change: DetailsUpdate, key: str | None
) -> Calibrator:
    """Change the description or the tags of a version.

    Raises
    ------
    NotFoundError: no such model or version.
    InputError: a value is not valid.
    ConflictError: `key` was used for another request.
    """

    def act() -> Calibrator:
        owner, actor = tx.models.get(model), current_principal().name
        return _calibrator(tx.edits.calibrator(owner, version, actor, **change.model_dump()))

    return run_once(tx, key, f"update_calibrator {model} {version}", change, 200, Calibrator, act)


def delete_calibrator(
    tx: Transaction,
    model: str,
    version: int,
    *,
    force: bool,
    key: str | None,
    deleted_seconds: float,
) -> Deletion:
    """Delete a version; its number is not used again.

    Raises
    ------
    NotFoundError: no such model or version.
    ConflictError: an alias points at it, it is a candidate in comparison, or an unfinished job uses
        it and `force` is not set.
    ForbiddenError: `force`, without the scope `admin`.
    """

    def delete(actor: str) -> None:
        tx.deletions.calibrator(tx.models.get(model), version, actor, force=force)

    scope = f"delete_calibrator {model} {version}"
    return delete_once(tx, scope, delete, force=force, key=key, deleted_seconds=deleted_seconds)


def delete_alias(
    tx: Transaction, model: str, alias: str, *, force: bool, key: str | None
) -> Deletion:
    """Delete an alias; the version stays.

    Raises
    ------
    NotFoundError: no such model or alias.
    ConflictError: it is the champion, and `force` is not set.
    """

    def delete(actor: str) -> None:
        tx.aliases.delete(tx.models.get(model), alias, actor, force=force)

    scope = f"delete_alias {model} {alias}"
    return delete_once(tx, scope, delete, force=force, key=key, deleted_seconds=0.0)


def list_aliases(tx: Transaction, model: str) -> AliasList:
    """Return all of a model's aliases."""
    owner = tx.models.get(model)
    return AliasList(items=[_alias(alias) for alias in tx.aliases.all(owner)])


async def set_alias(
    registry: Registry,
    loaded: LoadedCalibrators,
    model: str,
    alias: str,
    change: AliasSet,
    actor: str,
    key: str | None,
) -> Alias:
    """Point an alias at a version: requests after the answer use the new version.

    Idempotent: a repeat with the same key never undoes a rollback.

    Raises
    ------
    InputError: the alias is not a valid name.
    NotFoundError: the model or the version does not exist.
    ConflictError: `key` was used with another request.
    CorruptError: the parameters of the version are damaged.
    """
    check_alias("alias", alias)

    def act() -> Alias:
        calibrators.Calibrator.from_bytes(get_parameters(registry, model, change.version))
        with registry.transaction() as tx:
            owner = tx.models.get(model)
            scope = f"set_alias {model} {alias}"
            point = partial(_point, tx, owner, alias, change, actor)
            return run_once(tx, key, scope, change, 200, Alias, point)

    answer = await to_thread.run_sync(act)
    # Other server processes follow within `refresh_seconds`.
    await to_thread.run_sync(loaded.refresh)
    return answer


def _point(tx: Transaction, model: Model, alias: str, change: AliasSet, actor: str) -> Alias:
    row = tx.aliases.set(model, alias, change.version, actor, change.reason)
    # Only the champion is monitored.
    return _alias(row, warnings_of(tx, model, row.version) if alias == CHAMPION else ())


def get_alias_history(tx: Transaction, model: str, alias: str, limit: int) -> AliasHistory:
    """Return the changes of an alias, newest first."""
    changes = tx.aliases.history(tx.models.get(model), alias, limit)
    return AliasHistory(
        items=[
            AliasChange.model_validate({**vars(change), "at": change.changed_at})
            for change in changes
        ]
    )


def _calibrator(row: registry.CalibratorVersion) -> Calibrator:
    return Calibrator.model_validate({**vars(row), "job": row.job_id})


def _alias(row: registry.Alias, warnings: Sequence[str] = ()) -> Alias:
    return Alias.model_validate({**vars(row), "updated_at": row.changed_at, "warnings": warnings})
