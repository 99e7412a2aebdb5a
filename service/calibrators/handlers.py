"""Operations on calibrators and their aliases, independent of the transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict

from recalib import registry
from recalib.contract.calibrators import (
    Alias,
)
from recalib.contract.jobs import Job
from recalib.errors import ConflictError, InputError
from recalib.fitting.request import check_resampled, resolve_fit
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import FIT, PUBLISH
from recalib.sets.conformal import check_exchangeable, resolve_fields
from recalib.sets.rejection import check_not_folds
from recalib.sets.splits import check_folds
from recalib.shift.prior import class_weights
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue
from service.calibrators.schemas import SET_FIELDS, AliasSet, CalibratorCreate
from service.calibrators.upload import Upload
from service.serving.loaded_calibrators import CHAMPION
from service.validation_warnings import warnings_of

_UPLOAD_FIELDS = ("parameters", "row_digests")


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
    what = resolve_fit(fit.map, fit.objective, fit.options, model.task)
    rows = tx.datasets.get(model, fit.dataset).rows
    apart = *_UPLOAD_FIELDS, *SET_FIELDS, "sets_folds", "max_risk", "force", "resampled"
    fields = fit.model_dump(exclude=set(apart))
    fields |= _force(fit) | _sets(fit, model, rows)
    if fit.resampled is not None:
        check_resampled(what, task=model.task)
        fields["resampled"] = fit.resampled.model_dump()
        class_weights(fields["resampled"], np.ones(model.classes))  # raises InputError
    job = enqueue(tx, FIT, {"model": model.name, **fields}, model=model)
    detail = f"{fit.map} by {fit.objective} on {fit.dataset}"
    tx.audit.record(current_principal().name, "create_calibrator", model.name, job.id, detail)
    return Job.model_validate(job)


def request_publication(
    tx: Transaction, model: Model, request: CalibratorCreate, upload: Upload
) -> Job:
    """Enqueue the publication of an uploaded calibrator; `NotFoundError` without its data set."""
    if request.dataset is not None:
        tx.datasets.get(model, request.dataset)
    job = enqueue(
        tx,
        PUBLISH,
        {
            "model": model.name,
            "dataset": request.dataset,
            "promote": request.promote,
            **_force(request),
        },
        model=model,
        parameters=upload.parameters,
        row_digests=upload.row_digests,
    )
    detail = f"uploaded {upload.map}, sha256 {upload.digest}"
    tx.audit.record(current_principal().name, "create_calibrator", model.name, job.id, detail)
    return Job.model_validate(job)


def _sets(request: CalibratorCreate, model: Model, rows: int) -> dict[str, Any]:
    """Return the fields of a payload: how thresholds are fitted, if they are requested."""
    options = resolve_fields(**request.model_dump(include=set(SET_FIELDS)))
    check_folds(request.sets_folds, options, rows)
    check_not_folds(request.max_risk, request.sets_folds)
    if model.is_multilabel and (options or request.max_risk):
        check_exchangeable(task=model.task)
    # Workers of earlier versions know no `max_risk`.
    risk = {} if request.max_risk is None else {"max_risk": request.max_risk}
    if options is None:
        return risk
    return {"sets": asdict(options), "sets_folds": request.sets_folds, **risk}


def _force(request: CalibratorCreate) -> dict[str, bool]:
    """Return the field of a payload; workers of earlier versions know none."""
    return {"force": True} if request.force else {}


def get_parameters(registry: Registry, model: str, version: int) -> bytes:
    """Return the parameter file, or raise `NotFoundError`."""
    with registry.reading() as tx:
        return tx.calibrators.parameters(tx.models.get(model), version)


def point_alias(tx: Transaction, model: Model, alias: str, change: AliasSet) -> Alias:
    """Point an alias at a version.

    Raises
    ------
    NotFoundError: the version does not exist.
    ConflictError: without `force`, a champion that was fitted on rows that do not look like logits
        of the model.
    """
    if alias == CHAMPION and not change.force:
        dataset = tx.logit_scales.find_refused(model, change.version)
        if dataset is not None:
            raise ConflictError(
                f"version {change.version} was fitted on data set {dataset!r}, whose rows do not "
                "look like logits of the model (its job has the warnings); promote it with `force`"
            )
    row = tx.aliases.set(model, alias, change.version, current_principal().name, change.reason)
    # Only the champion is monitored.
    return alias_of(row, warnings_of(tx, model, row.version) if alias == CHAMPION else ())


def alias_of(row: registry.Alias, warnings: Sequence[str] = ()) -> Alias:
    """Return the wire form of an alias."""
    return Alias.model_validate({**vars(row), "updated_at": row.changed_at, "warnings": warnings})
