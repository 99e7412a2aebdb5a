"""The fit job: read a data set, fit a calibrator, cross-validate it, publish it."""

from __future__ import annotations

from typing import Any

import msgspec

from recalib.calibrator import Calibrator
from recalib.core.card import DataSummary, SetOptions
from recalib.fitting.fit import fit
from recalib.registry import Model
from recalib.scale.fit import fits_in_parts
from training.champion_comparison import Champion, compare_with_champion
from training.dataset_rows import judge_rows, read_rows
from training.large_datasets import IN_MEMORY, ClusterPolicy, open_large
from training.publication import publish
from training.worker import JobContext

#: Options of `auto` that say which predictions may change.
_POLICY_OPTIONS = ("predictions", "preserve_accuracy")


class FitRequest(msgspec.Struct, frozen=True):
    """The payload of a fit job."""

    model: str
    dataset: str
    map: str
    objective: str
    options: dict[str, Any]
    promote: bool | str
    force: bool = False
    sets: SetOptions | None = None
    sets_folds: int | None = None
    max_risk: float | None = None
    resampled: dict[str, Any] | None = None


def run_fit(context: JobContext, policy: ClusterPolicy = IN_MEMORY) -> None:
    """Fit a calibrator, and publish it in the transaction that finishes the job.

    A worker that dies before this transaction leaves nothing but its attempt. A worker that has
    lost its lease cannot commit it.

    Parameters
    ----------
    policy: which data sets are fitted in parts on a cluster. They are compared with the champion on
        a sample. Maps, objectives and sets that need all rows in memory are fitted there.
    """
    # 1. The request.
    request = context.request(FitRequest)
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        dataset = tx.datasets.get(model, request.dataset)

    options = _options(request, model)

    # 2. The fit on all rows, in parts or in memory.
    def report(stage: str, iteration: int, value: float) -> None:
        context.progress(0.1, f"fitting {stage}: iteration {iteration}, objective {value:.5f}")
        context.check_cancelled()

    context.progress(0.0, "reading the data set")
    needs_memory = request.sets or request.resampled or request.max_risk
    divides = not needs_memory and fits_in_parts(request.map, request.objective, options)
    if divides and policy.is_large(model, dataset):
        with open_large(context, model, dataset, policy) as large:
            calibrator = large.fit(request.map, request.objective, options, report)
            rows = large.sample()
    else:
        rows = read_rows(context.registry, model, dataset)
        context.check_cancelled()
        calibrator = fit(
            rows.data.logits,
            rows.data.labels,
            request.map,
            request.objective,
            task=model.task,
            input=dataset.input,
            class_labels=model.labels,
            measure=True,
            sets=request.sets,
            sets_folds=request.sets_folds,
            max_risk=request.max_risk,
            resampled=request.resampled,
            data=DataSummary(rows=dataset.rows, digest=dataset.digest, name=dataset.name),
            progress=report,
            **options,
        )

    def on_fold(fold: int, folds: int) -> None:
        context.progress(0.3 + 0.6 * fold / folds, f"cross-validating: {fold} of {folds} folds")
        context.check_cancelled()

    # 3. Comparison with the current champion, and publication.
    def compare(champion: Champion) -> Calibrator:
        selection = compare_with_champion(
            context, model, calibrator, champion, rows, on_fold, policy
        )
        card = msgspec.structs.replace(calibrator.card, selection=selection, model=model.name)
        return Calibrator(calibrator.parameters, card)

    publish(
        context,
        model,
        compare,
        promote=request.promote,
        force=request.force,
        findings=judge_rows(context.registry, model, rows),
        dataset_name=dataset.name,
    )


def _options(request: FitRequest, model: Model) -> dict[str, Any]:
    """Return the options of a fit; `auto` without its own policy has that of the model."""
    if request.map != "auto" or not request.options.keys().isdisjoint(_POLICY_OPTIONS):
        return request.options
    # Fits of models without the setting kept the predicted class.
    return request.options | {"predictions": model.predictions or "keep"}
