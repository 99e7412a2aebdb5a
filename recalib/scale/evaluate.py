"""Evaluate predictions in many files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats, Integers, Numbers, WeightKind
from recalib.core.executors import Cluster, open_workers
from recalib.core.options import check_choice
from recalib.errors import InputError
from recalib.files import DataFile, Input
from recalib.files.fragments import Fragment, Source, list_fragments, no_rows, none_if_empty
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.scale.sample_weights import list_weights, with_weights

#: Called with the number of finished fragments and the number of all.
Progress = Callable[[int, int], None]


def evaluate(
    source: Source,
    *,
    calibrator: Calibrator | None = None,
    input: Input | None = None,
    bins: int = 15,
    sample_weight: Source | None = None,
    weight_kind: WeightKind = "survey",
    format: str | None = None,
    cluster: Cluster = None,
    progress: Progress = lambda done, total: None,
) -> StreamingEvaluation:
    """Return the evaluation of all rows of a source, in memory of constant size.

    The values are those of `StreamingEvaluation`: metrics that need sorted rows are computed from a
    fine histogram. They are equal for any cluster, bit by bit.

    Parameters
    ----------
    source, format: as in `recalib.files.fragments.list_fragments`; every file has labels.
    calibrator: calibrate the rows first.
    input: what the files hold; by default what the calibrator was fitted on, or logits.
    bins: the number of bins M of binned metrics.
    sample_weight: `.npy` files with a number for each row: one for each file of the source, with
        the same names before the suffix; a file, a folder, a glob, a URL or several. The metrics
        are then those with a weighted form.
    weight_kind: `counts` if a weight is how many equal rows a row replaces: all metrics are then
        those of the repeated rows.
    cluster: as in `recalib.core.executors`; None: this process.
    progress: called after each fragment.

    Raises
    ------
    InputError: a file cannot be read, has no labels or invalid values, or another number of classes
        than the first; the message names the fragment. Weights are missing, invalid or zeros only.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> evaluation = recalib.scale.evaluate(["val.npz", "test.npz"])
    >>> evaluation.rows
    800
    """
    kind: Input = input or ("logits" if calibrator is None else calibrator.card.input)
    return evaluate_all(
        source,
        [calibrator],
        input=kind,
        bins=bins,
        sample_weight=sample_weight,
        weight_kind=weight_kind,
        format=format,
        cluster=cluster,
        progress=progress,
    )[0]


def evaluate_all(
    source: Source,
    calibrators: Sequence[Calibrator | None],
    *,
    input: Input,
    bins: int = 15,
    sample_weight: Source | None = None,
    weight_kind: WeightKind = "survey",
    format: str | None = None,
    cluster: Cluster = None,
    progress: Progress = lambda done, total: None,
) -> list[StreamingEvaluation]:
    """Return the evaluation of each calibrator, and of the uncalibrated rows for None.

    The rows are read once. See `evaluate` for the parameters and errors.
    """
    if any(calibrator is not None and calibrator.is_multilabel for calibrator in calibrators):
        raise InputError("task", found="multilabel", accepted="multiclass, in several files")
    check_choice("weight_kind", weight_kind, WeightKind)
    fragments = with_weights(list_fragments(source, format=format), list_weights(sample_weight))
    evaluate_fragment = partial(_evaluate_fragment, input, bins, tuple(calibrators), weight_kind)
    work = partial(none_if_empty, evaluate_fragment)
    totals: list[StreamingEvaluation] | None = None
    with open_workers(cluster) as workers:
        parts = workers.map(work, fragments, batch=workers.batch(len(fragments)))
        for done, (fragment, part) in enumerate(zip(fragments, parts, strict=True), start=1):
            progress(done, len(fragments))
            if part is None:
                continue
            if totals is None:
                totals, first = part, fragment
                continue
            if part[0].classes != totals[0].classes:
                raise InputError(
                    f"{fragment.name}: {input}",
                    found=f"{part[0].classes} classes",
                    accepted=f"{totals[0].classes}, as in {first.name}",
                )
            totals = [a.merge(b) for a, b in zip(totals, part, strict=True)]
    if totals is None:
        raise no_rows(fragments)
    if totals[0].rows == 0:
        raise InputError("weights", found="zeros only", accepted="at least one positive weight")
    return totals


def _evaluate_fragment(
    kind: Input,
    bins: int,
    calibrators: Sequence[Calibrator | None],
    weight_kind: WeightKind,
    fragment: Fragment,
) -> list[StreamingEvaluation]:
    with fragment.open(kind) as file:
        weighted = file.row_weights is not None and weight_kind == "survey"
        evaluations = [
            StreamingEvaluation(file.classes, bins, weighted=weighted) for _ in calibrators
        ]
        for scores, labels, weights in labelled_chunks(file):
            for calibrator, evaluation in zip(calibrators, evaluations, strict=True):
                values: dict[str, Any] = {kind: scores}
                if calibrator is not None:
                    values = {"probabilities": calibrator.predict(scores, input=kind)}
                evaluation.add(labels, **values, sample_weight=weights, weight_kind=weight_kind)
    return evaluations


def labelled_chunks(
    file: DataFile, max_bytes: int = 8 << 20
) -> Iterator[tuple[Floats, Integers, Numbers | None]]:
    """Yield the numbers (n, K), the labels (n,) and the weights (n,), or None, of an open file.

    Raises
    ------
    InputError: the file has no labels.
    """
    if not file.has_labels:
        raise InputError("labels", found="none", accepted="a file with labels")
    for chunk in file.chunks(max_bytes):
        yield chunk.logits, cast(Integers, chunk.labels), chunk.weights
