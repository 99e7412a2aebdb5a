"""The evaluation job: measure versions of a model on one of its data sets, and draw them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np

from recalib.calibrator import Calibrator
from recalib.decoding import converted
from recalib.errors import InputError
from recalib.fitting.row_digests import decode_digests
from recalib.registry import Dataset, Model
from training.dataset_rows import DatasetRows, read_rows
from training.worker import JobContext

__all__ = ["CONTENT", "run_evaluation"]

#: Name of the file in the job's result: the pictures and the page, as JSON.
CONTENT = "evaluation.json"
_IDENTITY = "identity"


class EvaluationRequest(msgspec.Struct, frozen=True):
    """The payload of an evaluation job."""

    model: str
    dataset: str
    #: Numbers, or `identity` for the model without a calibrator; the first is the reference.
    versions: list[int | str]


def run_evaluation(context: JobContext) -> None:
    """Measure each version, compare it with the first, and store the pictures and the page.

    Raises
    ------
    NotFoundError: the model, the data set or a version was deleted.
    UnsupportedError: the package for pictures is not installed.
    """
    # Altair is slow to import.
    from recalib.reporting.html_report import Source, create_versions_report

    # 1. The request, and the rows in memory.
    try:
        request = converted(context.payload, EvaluationRequest)
    except msgspec.ValidationError as error:
        accepted = "the fields of an evaluation"
        raise InputError("payload", found=str(error), accepted=accepted) from None
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        dataset = tx.datasets.get(model, request.dataset)
    context.progress(0.0, "reading the data set")
    rows = read_rows(context.registry, model, dataset)

    # 2. The versions, and how many of the rows each was fitted on.
    fitted_rows: list[int | None] = []
    scores: dict[str, Callable[[], Any]] = {}
    for version in request.versions:
        if version == _IDENTITY:
            fitted_rows.append(0)
            scores[_IDENTITY] = partial(_uncalibrated, rows)
        else:
            calibrator, count = _read_version(context, model, int(version), rows)
            fitted_rows.append(count)
            scores[f"version {version}"] = partial(_calibrated, calibrator, rows)
    warnings = [
        text
        for name, count in zip(scores, fitted_rows, strict=True)
        if (text := _warning(name, count, len(rows.labels)))
    ]

    # 3. Metrics, changes and pictures.
    steps = iter(range(2 * len(scores)))

    def progress(message: str) -> None:
        context.progress(0.1 + 0.9 * next(steps) / (2 * len(scores)), message)
        context.check_cancelled()

    report = create_versions_report(
        Source(dataset.name, dataset.digest, rows.data),
        scores,
        input=dataset.input,
        class_names=model.labels,
        warnings=warnings,
        title=f"{model.name} on {dataset.name}",
        progress=progress,
    )

    # 4. The result, in the transaction that finishes the job.
    results = [
        {
            "version": str(version),
            "fitted_rows": count,
            "metrics": {name: dataclasses.asdict(item) for name, item in result.metrics.items()},
            "changes": {name: dataclasses.asdict(item) for name, item in result.changes.items()},
        }
        for version, count, result in zip(
            request.versions, fitted_rows, report.results, strict=True
        )
    ]
    summary = {"rows": len(rows.labels), "results": results, "warnings": warnings}
    content = {
        "pictures": [dataclasses.asdict(picture) for picture in report.pictures],
        "report": report.html,
    }
    _finish(context, dataset, summary, msgspec.json.encode(content))


def _read_version(
    context: JobContext, model: Model, version: int, rows: DatasetRows
) -> tuple[Calibrator, int | None]:
    """Return a version, and the number of the rows that it was fitted on; None if not known."""
    with context.registry.reading() as tx:
        calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, version))
        is_own = tx.calibrators.get(model, version).dataset == rows.dataset.name
        stored = tx.calibrators.row_digests(model, version)
    if is_own:
        return calibrator, len(rows.labels)
    # Digests recognise rows of the same input only.
    if stored is None or calibrator.card.input != rows.dataset.input:
        return calibrator, None
    return calibrator, int(np.count_nonzero(np.isin(rows.digests, decode_digests(stored))))


def _warning(name: str, fitted: int | None, rows: int) -> str:
    if fitted is None:
        return f"The rows that {name} was fitted on are not known; they may be among these rows."
    if fitted == 0:
        return ""
    return (
        f"{name[0].upper()}{name[1:]} was fitted on {fitted:,} of these {rows:,} rows: its metrics "
        "here are not evidence of how it does on new rows."
    )


def _uncalibrated(rows: DatasetRows) -> tuple[str, Any]:
    return rows.dataset.input, rows.data.logits


def _calibrated(calibrator: Calibrator, rows: DatasetRows) -> tuple[str, Any]:
    return "probabilities", calibrator.predict(rows.data.logits, input=rows.dataset.input)


def _finish(context: JobContext, dataset: Dataset, summary: dict[str, Any], content: bytes) -> None:
    registry = context.registry
    with registry.blobs.writer() as blob:
        blob.write(content)
        with registry.storing(blob, context.finishing) as (tx, digest):
            file = {"digest": digest, "bytes": len(content)}
            result = {"dataset": dataset.name, **summary, "files": {CONTENT: file}}
            tx.jobs.succeed(context.lease, result)
