"""Measure and draw predictions of independent labels, for a page of versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recalib.metrics.multilabel import LabelEstimates, LabelPredictions, evaluate_labels
from recalib.metrics.paired_labels import LabelChanges, paired_label_changes
from recalib.reporting.html_report.pictures import ReportPicture, bar_legend, draw_picture
from recalib.reporting.html_report.rendering import metric_rows
from recalib.reporting.html_report.results import LabelResult, VersionResult
from recalib.reporting.plots import label_diagram
from recalib.reporting.plots.style import panels

#: Rows of the table of labels.
_MAX_ROWS = 50
#: What the metrics are, where the text for classes does not fit.
_SUMMARIES = {
    "accuracy": "fraction of rows where p > 1/2 agrees with the label",
    "brier": "mean of 2(p − y)²; a proper score",
    "ece": "gap between probability and frequency of the label, equal-width bins",
}


def measure_labels(
    name: str,
    predictions: LabelPredictions,
    names: Sequence[str] | None,
    first: tuple[VersionResult, LabelPredictions] | None,
    level: float,
) -> VersionResult:
    """Return the metrics of a version, and the changes from the `first` version."""
    estimates = evaluate_labels(predictions, level=level)
    changes = LabelChanges({}, [{}] * predictions.count)
    if first is not None and len(predictions) > 1:
        result, reference = first
        before = LabelEstimates(result.metrics, [label.metrics for label in result.labels])
        changes = paired_label_changes(reference, predictions, before, estimates, level=level)
    known = names or [str(k) for k in range(predictions.count)]
    labels = [
        LabelResult(*values) for values in zip(known, estimates.labels, changes.labels, strict=True)
    ]
    return VersionResult(name, estimates.average, changes.average, labels)


def label_metric_rows(before: VersionResult, after: VersionResult) -> list[dict[str, Any]]:
    """Return the rows of the table of means over labels."""
    rows = metric_rows(before.metrics, after.metrics, after.changes)
    return [row | {"summary": _SUMMARIES.get(row["name"], row["summary"])} for row in rows]


def label_table(
    before: VersionResult, after: VersionResult, predictions: LabelPredictions
) -> list[dict[str, Any]]:
    """Return NLL and ECE of the labels with the largest ECE of the version `after`."""
    errors = np.array([label.metrics["ece"].value for label in after.labels])
    counts = predictions.labels.sum(axis=0)
    return [
        {
            "name": after.labels[k].label,
            "count": int(counts[k]),
            "metrics": [
                row
                for row in metric_rows(
                    before.labels[k].metrics, after.labels[k].metrics, after.labels[k].changes
                )
                if row["name"] in ("nll", "ece")
            ],
        }
        for k in np.argsort(-errors, kind="stable")[:_MAX_ROWS]
    ]


def draw_label_pictures(
    series: Mapping[str, LabelPredictions], names: Sequence[str] | None
) -> list[ReportPicture]:
    """Return reliability diagrams of the worst labels of each version."""
    return [
        draw_picture(
            f"Labels with the largest error, {name}",
            "Bars are the frequency of a label by its predicted probability; the labels with the "
            "largest ECE first.",
            "grid",
            bar_legend("frequency", "probability"),
            *panels(label_diagram(predictions, labels=names)),
        )
        for name, predictions in series.items()
    ]
