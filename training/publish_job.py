"""The publication job: compare an uploaded calibrator with the champion, and publish it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.card import Selection
from recalib.drift.reference_histogram import reference_histogram
from recalib.drift.target import monitored_probabilities, target_of
from recalib.fitting.cross_validation import compare_as_fitted
from recalib.fitting.fit_card import measure_metrics, reliability_of, stages_of
from recalib.fitting.row_digests import Digests, are_distinct, decode_digests
from recalib.fitting.thresholds import measure_thresholds
from recalib.metrics.predictions import Predictions
from recalib.registry import Dataset, Model
from training.champion_comparison import MIN_UNSEEN, Champion, rows_of_champion
from training.dataset_rows import DatasetRows, judge_rows, read_rows
from training.large_datasets import IN_MEMORY, ClusterPolicy, open_large
from training.publication import publish
from training.worker import JobContext


class PublishRequest(msgspec.Struct, frozen=True):
    """The payload of a publication job."""

    model: str
    #: The data set of the comparison.
    dataset: str | None
    promote: bool | str
    force: bool = False


@dataclass(frozen=True, eq=False)
class _Upload:
    """An uploaded calibrator, and what is known of the rows that it was fitted on."""

    calibrator: Calibrator
    #: The digests that came with it.
    sent_digests: bytes | None
    #: The data set with the digest in the card.
    dataset: Dataset | None
    #: Of the rows; None if they are not known or of a large data set.
    digests: Digests | None


def run_publish(context: JobContext, policy: ClusterPolicy = IN_MEMORY) -> None:
    """Publish an uploaded calibrator in the transaction that finishes the job.

    It is compared with the champion on the rows of a data set that neither was fitted on. Without
    such rows, `if_better` does not promote it.

    Parameters
    ----------
    policy: which data sets are read in parts on a cluster; the comparison is on a sample of them.
    """
    # 1. The request.
    request = context.request(PublishRequest)
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        dataset = None if request.dataset is None else tx.datasets.get(model, request.dataset)

    # 2. The calibrator, and the data set of the comparison.
    context.progress(0.0, "reading")
    upload = _read_upload(context, model, policy)
    rows = None if dataset is None else _read_rows(context, model, dataset, policy)
    context.check_cancelled()

    # 3. Comparison with the champion, and publication.
    def compare(champion: Champion) -> Calibrator:
        context.progress(0.5, "comparing")
        return _compare(context, model, upload, champion, rows, policy)

    publish(
        context,
        model,
        compare,
        promote=request.promote,
        force=request.force,
        findings=[] if rows is None else judge_rows(context.registry, model, rows),
        dataset_name=None if upload.dataset is None else upload.dataset.name,
        row_digests=upload.sent_digests,
    )


def _read_rows(
    context: JobContext, model: Model, dataset: Dataset, policy: ClusterPolicy
) -> DatasetRows:
    if not policy.is_large(model, dataset):
        return read_rows(context.registry, model, dataset)
    with open_large(context, model, dataset, policy) as large:
        return large.sample()


def _read_upload(context: JobContext, model: Model, policy: ClusterPolicy) -> _Upload:
    with context.registry.reading() as tx:
        content, sent = tx.jobs.upload(context.lease.job.id)
        calibrator = Calibrator.from_bytes(content)
        dataset = tx.datasets.find_digest(model, calibrator.card.data.digest)
    if sent is not None:
        return _Upload(calibrator, sent, None, decode_digests(sent))
    if dataset is None or dataset.input != calibrator.card.input:
        return _Upload(calibrator, None, None, None)
    digests = None
    if not policy.is_large(model, dataset):
        # Recorded now: the data set may be deleted later.
        digests = read_rows(context.registry, model, dataset).digests
    return _Upload(calibrator, None, dataset, digests)


def _fitted_rows(
    context: JobContext, model: Model, upload: _Upload, rows: DatasetRows, policy: ClusterPolicy
) -> NDArray[np.bool_] | None:
    """Return which rows (N,) an upload was fitted on; None if that is not known."""
    if upload.digests is not None:
        return np.isin(rows.digests, upload.digests) & are_distinct(rows.digests)
    dataset = upload.dataset
    if dataset is None:
        return None
    with open_large(context, model, dataset, policy) as large:
        return large.contains(rows.digests) & are_distinct(rows.digests)


def _compare(
    context: JobContext,
    model: Model,
    upload: _Upload,
    champion: Champion,
    rows: DatasetRows | None,
    policy: ClusterPolicy,
) -> Calibrator:
    """Return the calibrator with the comparison in its card, and what the rows measure."""
    calibrator, reference = upload.calibrator, champion.calibrator
    card = msgspec.structs.replace(calibrator.card, model=model.name)
    unseen = _unseen_rows(context, model, upload, champion, rows, policy)
    if rows is None or isinstance(unseen, str):
        name = "identity" if reference is None else reference.card.map
        selection = Selection(
            folds=0, nll=0.0, reference=name, reference_nll=0.0, standard_error=0.0,
            better=False, rows=0, reason=f"{card.map} is not compared with {name}: {unseen}",
        )  # fmt: skip
    else:
        logits, labels = rows.logits[unseen], rows.labels[unseen]
        selection = compare_as_fitted(calibrator, reference, logits, labels)
        probabilities = calibrator.predict_float64(logits)
        card = msgspec.structs.replace(card, metrics=measure_metrics(logits, probabilities, labels))
        if not model.is_multilabel:  # the baseline of monitoring
            target = target_of(model.classes)
            monitored = monitored_probabilities(probabilities, target)
            histogram = reference_histogram(monitored, target)
            thresholds = None
            if target == "positive_class":
                thresholds = measure_thresholds(calibrator, monitored, labels)
            stages = stages_of(logits, Predictions.from_probabilities(probabilities, labels))
            card = msgspec.structs.replace(
                card,
                confidences=histogram,
                thresholds=thresholds,
                reliability=reliability_of(stages),
            )
        selection = msgspec.structs.replace(selection, dataset=rows.dataset.name)
    version = None if reference is None else champion.expected.version
    selection = msgspec.structs.replace(selection, reference_version=version)
    return Calibrator(calibrator.parameters, msgspec.structs.replace(card, selection=selection))


def _unseen_rows(
    context: JobContext,
    model: Model,
    upload: _Upload,
    champion: Champion,
    rows: DatasetRows | None,
    policy: ClusterPolicy,
) -> NDArray[np.bool_] | str:
    """Return which rows (N,) neither calibrator was fitted on, or why there is no comparison."""
    if rows is None:
        return "the request names no data set to compare on"
    name, kind = rows.dataset.name, upload.calibrator.card.input
    if rows.dataset.input != kind:
        return (
            f"it was fitted on {kind}, and {name} has {rows.dataset.input}, in which its rows are "
            "not recognised"
        )
    seen = _fitted_rows(context, model, upload, rows, policy)
    if seen is None:
        return (
            "the rows that it was fitted on are not known; send their digests (`recalib publish "
            "--fitted-on FILE`), or upload the file that it was fitted on as a data set"
        )
    fitted = "it was"
    if champion.calibrator is not None:
        version = f"version {champion.expected.version}"
        other = champion.calibrator.card.input
        if other != kind:
            return f"{version} was fitted on {other}, and {name} has {kind}"
        of_champion = rows_of_champion(context, model, champion, rows, policy)
        if of_champion is None:
            return f"the rows that {version} was fitted on are not known"
        seen |= of_champion
        fitted = f"it or {version} was"
    unseen = int(np.count_nonzero(~seen))
    if unseen < MIN_UNSEEN:
        noun = "rows" if rows.all_counts is None else "sampled rows"
        return (
            f"{fitted} fitted on all but {unseen:,} of the {len(seen):,} {noun} of {name}, and "
            f"{MIN_UNSEEN} other rows are needed"
        )
    return ~seen
