"""The fit job: read a data set, fit a calibrator, cross-validate it, publish it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from recalib.arrays import log_probabilities
from recalib.calibrator import Calibrator
from recalib.card import DataSummary, Selection
from recalib.decoding import converted
from recalib.errors import ConflictError, CorruptError, InputError
from recalib.files import MEDIA_TYPES, LabelledData, read
from recalib.fitting.cross_validation import Candidate, compare_by_cross_validation
from recalib.fitting.fit import configure_pair, fit
from recalib.registry import Dataset, ExpectedVersion, Model
from training.worker import JobContext

__all__ = ["run_fit"]

log = logging.getLogger(__name__)

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
    # Formats without checksums would return damaged rows without an error.
    context.registry.blobs.verify(dataset.digest)
    with context.registry.blobs.open(dataset.digest) as file:
        data = read(file, format=MEDIA_TYPES[dataset.media_type], input=dataset.input)
    context.check_cancelled()

    # 3. The fit on all rows.
    def report(stage: str, iteration: int, value: float) -> None:
        context.progress(0.1, f"fitting {stage}: iteration {iteration}, objective {value:.5f}")
        context.check_cancelled()

    calibrator = fit(
        data.logits,
        data.labels,
        request.map,
        request.objective,
        input=dataset.input,
        class_labels=model.labels,
        data=DataSummary(rows=dataset.rows, digest=dataset.digest, name=dataset.name),
        progress=report,
        **request.options,
    )

    # 4. Cross-validation against the current champion, repeated if the champion changes meanwhile.
    for attempt in range(_MAX_COMPARISONS):
        expected, champion = _champion(context, model)
        selection = _select(context, calibrator, champion, dataset, data)
        try:
            _publish(context, request, model, calibrator, selection, expected)
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
        result={"promoted": promote, "reason": reason, "map": card.map},
    )


def _request(payload: dict[str, Any]) -> FitRequest:
    try:
        return converted(payload, FitRequest)
    except msgspec.ValidationError as error:
        raise InputError("payload", found=str(error), accepted="the fields of a fit") from None


def _champion(context: JobContext, model: Model) -> tuple[ExpectedVersion, Calibrator | None]:
    with context.registry.reading() as tx:
        alias = tx.aliases.find(model, _CHAMPION)
        if alias is None:
            return ExpectedVersion(None), None
        parameters = tx.calibrators.parameters(model, alias.version)
    try:
        return ExpectedVersion(alias.version), Calibrator.from_bytes(parameters)
    except CorruptError as error:
        # A damaged champion must not block its successors.
        fields = {"action": "champion_damaged", "model": model.name}
        log.warning("The champion is damaged and not compared: %s", error, extra=fields)
        return ExpectedVersion(alias.version), None


def _select(
    context: JobContext,
    calibrator: Calibrator,
    champion: Calibrator | None,
    dataset: Dataset,
    data: LabelledData,
) -> Selection:
    """Compare with the champion, or with the uncalibrated probabilities if there is none."""

    def report(fold: int, folds: int) -> None:
        context.progress(0.3 + 0.6 * fold / folds, f"cross-validating: {fold} of {folds} folds")
        context.check_cancelled()

    z = data.logits if dataset.input == "logits" else log_probabilities(data.logits)
    return compare_by_cross_validation(
        _candidate_of(calibrator), _reference(champion, dataset), z, data.labels, progress=report
    )


def _reference(champion: Calibrator | None, dataset: Dataset) -> Candidate | Calibrator:
    if champion is None:
        return Candidate(*configure_pair("identity", "nll", {}))
    if champion.card.data.digest == dataset.digest:
        # The champion was fitted on these rows: only a refit in each fold makes the comparison
        # fair.
        return _candidate_of(champion)
    return champion


def _candidate_of(calibrator: Calibrator) -> Candidate:
    card = calibrator.card
    options = card.objective_options | card.options
    return Candidate(*configure_pair(card.map, card.objective, options))
