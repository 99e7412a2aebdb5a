"""Evaluate predictions in many files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from recalib.calibrator import Calibrator
from recalib.errors import InputError
from recalib.executors import open_workers
from recalib.files import Input
from recalib.fragments import Fragment, Source, list_fragments
from recalib.metrics.evaluate import StreamingEvaluation

__all__ = ["evaluate"]

#: Called with the number of finished fragments and the number of all.
Progress = Callable[[int, int], None]


def evaluate(
    source: Source,
    *,
    calibrator: Calibrator | None = None,
    input: Input | None = None,
    bins: int = 15,
    format: str | None = None,
    cluster: str | None = None,
    progress: Progress = lambda done, total: None,
) -> StreamingEvaluation:
    """Return the evaluation of all rows of a source, in memory of constant size.

    The values are those of `StreamingEvaluation`: metrics that need sorted rows are computed from a
    fine histogram. They are equal for any cluster, bit by bit.

    Parameters
    ----------
    source, format: as in `recalib.fragments.list_fragments`; every file has labels.
    calibrator: calibrate the rows first.
    input: what the files hold; by default what the calibrator was fitted on, or logits.
    bins: the number of bins M of binned metrics.
    cluster: as in `recalib.executors`; None: this process.
    progress: called after each fragment.

    Raises
    ------
    InputError: a file cannot be read, has no labels or invalid values, or another number of classes
        than the first; the message names the fragment.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> evaluation = evaluate("validation/*.parquet", cluster="local:2")  # doctest: +SKIP
    >>> evaluation.finish(level=0.95)["ece"]  # doctest: +SKIP
    """
    if calibrator is not None and calibrator.is_multilabel:
        raise InputError("task", found="multilabel", accepted="multiclass, in several files")
    kind: Input = input or ("logits" if calibrator is None else calibrator.card.input)
    fragments = list_fragments(source, format=format)
    work = partial(_evaluate_fragment, kind, bins, calibrator)
    total: StreamingEvaluation | None = None
    with open_workers(cluster) as workers:
        parts = workers.map(work, fragments)
        for done, (fragment, part) in enumerate(zip(fragments, parts, strict=True), start=1):
            if total is not None and part.classes != total.classes:
                raise InputError(
                    f"{fragment.name}: {kind}",
                    found=f"{part.classes} classes",
                    accepted=f"{total.classes}, as in {fragments[0].name}",
                )
            total = part if total is None else total.merge(part)
            progress(done, len(fragments))
    assert total is not None  # noqa: S101 - there is at least one fragment
    return total


def _evaluate_fragment(
    kind: Input, bins: int, calibrator: Calibrator | None, fragment: Fragment
) -> StreamingEvaluation:
    with fragment.open(kind) as file:
        if not file.has_labels:
            raise InputError("labels", found="none", accepted="a file with labels")
        evaluation = StreamingEvaluation(file.classes, bins)
        for chunk in file.chunks():
            values: dict[str, Any] = {kind: chunk.logits}
            if calibrator is not None:
                values = {"probabilities": calibrator.predict(chunk.logits, input=kind)}
            labels: Any = chunk.labels
            evaluation.add(labels, **values)
    return evaluation
