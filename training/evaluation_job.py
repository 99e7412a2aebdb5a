"""The evaluation job: measure versions of a model on one of its data sets, and draw them."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from recalib.calibrator import Calibrator
from recalib.core.segment_columns import UNNAMED
from recalib.files import Input
from recalib.fitting.row_digests import are_distinct, decode_digests, may_be_chance
from recalib.registry import Dataset, Model
from training.dataset_rows import DatasetRows, read_rows, read_segments
from training.large_datasets import IN_MEMORY, ClusterPolicy, LargeDataset, open_large
from training.worker import JobContext

if TYPE_CHECKING:
    from recalib.reporting.html_report import VersionResult

#: Name of the file in the job's result: the pictures, the metrics of single labels, which may be
#: many, and the page, as JSON.
CONTENT = "evaluation.json"
_IDENTITY = "identity"


class EvaluationRequest(msgspec.Struct, frozen=True):
    """The payload of an evaluation job."""

    model: str
    dataset: str
    #: Numbers, or `identity` for the model without a calibrator; the first is the reference.
    versions: list[int | str]
    #: Columns of the file.
    segments: list[str] = []


def run_evaluation(context: JobContext, policy: ClusterPolicy = IN_MEMORY) -> None:
    """Measure each version, compare it with the first, and store the pictures and the page.

    Parameters
    ----------
    policy: which data sets are measured in parts on a cluster; their pictures show a sample.

    Raises
    ------
    NotFoundError: the model, the data set or a version was deleted.
    PackageError: the package for pictures is not installed.
    """
    # Altair is slow to import.
    from recalib.reporting.html_report import Source, create_versions_report

    # 1. The request, and the rows in memory.
    request = context.request(EvaluationRequest)
    with context.registry.reading() as tx:
        model = tx.models.get(request.model)
        dataset = tx.datasets.get(model, request.dataset)
    context.progress(0.0, "reading the data set")
    with ExitStack() as stack:
        large = None
        # Columns of segments are in memory, and so are all rows of an upload that has them.
        if policy.is_large(model, dataset) and not request.segments:
            large = stack.enter_context(open_large(context, model, dataset, policy))
        rows = read_rows(context.registry, model, dataset) if large is None else large.sample()

        # 2. The versions, and how many of the rows each was fitted on.
        fitted_rows: list[int | None] = []
        calibrators: dict[str, Calibrator | None] = {}
        for version in request.versions:
            if version == _IDENTITY:
                fitted_rows.append(0)
                calibrators[_IDENTITY] = None
            else:
                calibrator, count = _read_version(context, model, int(version), rows)
                fitted_rows.append(count)
                calibrators[f"version {version}"] = calibrator
        columns = read_segments(context.registry, dataset, request.segments)
        scores = {name: partial(_scores, item, rows, columns) for name, item in calibrators.items()}
        measured = None if large is None else _measure(context, large, calibrators)
    warnings = [
        text
        for name, count in zip(scores, fitted_rows, strict=True)
        if (text := _warning(name, count, dataset.rows, model.classes))
    ]
    warnings += [
        f"{name.capitalize()} is measured by its common map: its segments are of the column "
        f"{item.card.segments.columns[0]}, which the request does not name."
        for name, item in calibrators.items()
        if item and item.card.segments and not _has_columns(item, columns)
    ]

    # 3. Metrics, changes and pictures.
    steps = iter(range(2 * len(scores)))

    def progress(message: str) -> None:
        context.progress(0.1 + 0.9 * next(steps) / (2 * len(scores)), message)
        context.check_cancelled()

    report = create_versions_report(
        Source(dataset.name, dataset.digest, rows.data, all_counts=rows.all_counts),
        scores,
        input=dataset.input,
        class_names=model.labels,
        warnings=warnings,
        segments=columns,
        results=measured,
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
    summary = {"rows": dataset.rows, "results": results, "warnings": warnings}
    content = {
        "pictures": report.pictures,
        "labels": [result.labels for result in report.results],
        "segments": [
            [{"segment": name, "rows": of.rows, "metrics": of} for name, of in items]
            for items in (result.segments.items() for result in report.results)
        ],
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
        return calibrator, rows.dataset.rows
    # Digests recognise rows of the same input only; those of a sample do not count all rows.
    is_known = rows.all_counts is None and are_distinct(rows.digests)
    if stored is None or not is_known or calibrator.card.input != rows.dataset.input:
        return calibrator, None
    return calibrator, int(np.count_nonzero(np.isin(rows.digests, decode_digests(stored))))


def _warning(name: str, fitted: int | None, rows: int, classes: int) -> str:
    if fitted is None:
        return f"The rows that {name} was fitted on are not known; they may be among these rows."
    if fitted == 0 or may_be_chance(fitted, rows, classes):
        return ""
    return (
        f"{name[0].upper()}{name[1:]} was fitted on {fitted:,} of these {rows:,} rows: its metrics "
        "here are not evidence of how it does on new rows."
    )


def _scores(
    calibrator: Calibrator | None, rows: DatasetRows, columns: dict[str, Any] | None
) -> tuple[Input, Any]:
    kind, values = rows.dataset.input, rows.data.logits
    if calibrator is None:
        return kind, values
    segments = columns if _has_columns(calibrator, columns) else None
    return "probabilities", calibrator.predict(values, segments, input=kind)


def _has_columns(calibrator: Calibrator, columns: dict[str, Any] | None) -> bool:
    summary = calibrator.card.segments
    if summary is None or not columns:
        return False
    is_unnamed = summary.columns == (UNNAMED,) and len(columns) == 1  # `predict` takes any name
    return is_unnamed or {*summary.columns} <= {*columns}


def _measure(
    context: JobContext, large: LargeDataset, calibrators: dict[str, Calibrator | None]
) -> dict[str, VersionResult]:
    """Return the metrics of each version on all rows, and the changes from the first."""
    from recalib.reporting.html_report import VersionResult

    names = list(calibrators)
    results: dict[str, VersionResult] = {}
    for number, name in enumerate(names[1:] or names, start=1):
        context.progress(0.1 * number / len(names), f"measuring {name}")
        metrics = large.compare(calibrators[names[0]], calibrators[name])
        results.setdefault(names[0], VersionResult(names[0], dict(metrics.before), {}))
        if name != names[0]:
            results[name] = VersionResult(name, dict(metrics.after), metrics.changes)
    return results


def _finish(context: JobContext, dataset: Dataset, summary: dict[str, Any], content: bytes) -> None:
    registry = context.registry
    with registry.blobs.writer() as blob:
        blob.write(content)
        with registry.storing(blob, context.finishing) as (tx, digest):
            file = {"digest": digest, "bytes": len(content)}
            result = {"dataset": dataset.name, **summary, "files": {CONTENT: file}}
            tx.jobs.succeed(context.lease, result)
