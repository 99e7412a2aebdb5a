"""The fit job: read a data set, fit a calibrator, cross-validate it, publish it."""

from __future__ import annotations

from typing import Any

import msgspec

from recalib.calibrator import Calibrator
from recalib.card import DataSummary, Selection
from recalib.decoding import converted
from recalib.errors import ConflictError, InputError
from recalib.fitting.fit import fit
from recalib.fitting.validation_error import validation_warnings
from recalib.registry import ExpectedVersion, Model
from training.champion_comparison import compare_with_champion, find_champion
from training.dataset_rows import read_rows
from training.worker import JobContext

__all__ = ["run_fit"]

_CHAMPION = "champion"
#: Attempts to compare with a champion that changes meanwhile; each is a cross-validation.
_MAX_COMPARISONS = 5


class FitRequest(msgspec.Struct, frozen=True):
    """The payload of a fit job."""

    model: str
    dataset: str
    map: str
    objective: str
    options: dict[str, Any]
    promote: bool | str


def run_fit(context: JobContext) -> None:
    """Fit a calibrator, and publish it in the transaction that finishes the job.

    A worker that dies before this transaction leaves nothing but its attempt. A worker that has
    lost its lease cannot commit it.
    """
    # 1. The request.
    request = _request(context.payload)
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        dataset = tx.datasets.get(model, request.dataset)

    # 2. The data set, in memory.
    context.progress(0.0, "reading the data set")
    rows = read_rows(context.registry, model, dataset)
    context.check_cancelled()

    # 3. The fit on all rows.
    def report(stage: str, iteration: int, value: float) -> None:
        context.progress(0.1, f"fitting {stage}: iteration {iteration}, objective {value:.5f}")
        context.check_cancelled()

    calibrator = fit(
        rows.data.logits,
        rows.data.labels,
        request.map,
        request.objective,
        input=dataset.input,
        class_labels=model.labels,
        measure=True,
        data=DataSummary(rows=dataset.rows, digest=dataset.digest, name=dataset.name),
        progress=report,
        **request.options,
    )

    def on_fold(fold: int, folds: int) -> None:
        context.progress(0.3 + 0.6 * fold / folds, f"cross-validating: {fold} of {folds} folds")
        context.check_cancelled()

    # 4. Comparison with the current champion, repeated if the champion changes meanwhile.
    for attempt in range(_MAX_COMPARISONS):
        champion = find_champion(context.registry, model)
        selection = compare_with_champion(
            context.registry, model, calibrator, champion, rows, on_fold
        )
        try:
            _publish(context, request, model, calibrator, selection, champion.expected)
            return
        except ConflictError:
            if attempt + 1 == _MAX_COMPARISONS:
                raise


def _publish(
    context: JobContext,
    request: FitRequest,
    model: Model,
    calibrator: Calibrator,
    selection: Selection,
    expected: ExpectedVersion,
) -> None:
    """Publish the version, promote it and finish the job, atomically."""
    context.progress(0.95, "publishing")
    card = msgspec.structs.replace(calibrator.card, selection=selection, model=model.name)
    monitoring = model.monitoring
    warnings = validation_warnings(
        card, "this version", tolerance=monitoring.tolerance, objective=monitoring.objective
    )
    if_better = request.promote == "if_better"
    promote = selection.better if if_better else bool(request.promote)
    reason = selection.reason if if_better else "as requested"
    context.publish(
        model,
        dataset_name=request.dataset,
        card=card.to_dict(),
        parameters=Calibrator(calibrator.parameters, card).to_bytes(),
        promote_alias=_CHAMPION if promote else None,
        reason=reason,
        expected=expected if if_better else None,
        result={
            "promoted": promote,
            "reason": reason,
            "map": card.map,
            "warnings": warnings,
            "comparison": _comparison(selection),
        },
    )


def _comparison(selection: Selection) -> dict[str, Any]:
    """Return the gain over the champion and the thresholds, for the job's result."""
    return {
        "reference": selection.reference,
        "reference_version": selection.reference_version,
        "rows": selection.rows,
        "gain": selection.reference_nll - selection.nll,
        "standard_error": selection.standard_error,
        "threshold": selection.threshold,
        "pooled": msgspec.to_builtins(selection.pooled),
        "rule": selection.rule,
    }


def _request(payload: dict[str, Any]) -> FitRequest:
    try:
        return converted(payload, FitRequest)
    except msgspec.ValidationError as error:
        raise InputError("payload", found=str(error), accepted="the fields of a fit") from None
