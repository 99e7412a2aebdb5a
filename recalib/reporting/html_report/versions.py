"""Measure and draw several predictions of one data set: the versions of a model's calibrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recalib.core.arrays import Floats
from recalib.files import Input
from recalib.metrics import Estimate
from recalib.metrics.evaluate import as_predictions, evaluate, measure_all
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.headline import headline_error
from recalib.metrics.multilabel import LabelPredictions
from recalib.metrics.paired import paired_changes
from recalib.reporting.html_report.changes import version_sentence
from recalib.reporting.html_report.labels import (
    draw_label_pictures,
    label_metric_rows,
    label_table,
    measure_labels,
)
from recalib.reporting.html_report.pictures import ReportPicture, draw_pictures
from recalib.reporting.html_report.rendering import Source, describe_source, metric_rows, render
from recalib.reporting.html_report.results import VersionResult
from recalib.reporting.html_report.shift import UnderShift, segments_of, set_metrics

_LEVEL = 0.95

#: What the numbers of a version are, and the numbers (N, K).
Scores = tuple[Input, Floats]


@dataclass(frozen=True)
class MapScore:
    """The cross-validated NLL of a map, a mean over rows and labels."""

    map: str
    summary: str
    nll: float
    #: The NLL minus that of the best map, with its standard error.
    difference: float
    error: float


@dataclass(frozen=True)
class MapChoice:
    """The recommended map, and those that it was compared with."""

    map: str
    reason: str
    rows: int
    folds: int
    scores: Sequence[MapScore]


@dataclass(frozen=True)
class VersionPicture:
    """A Vega-Lite specification; `versions` are the names of those in the picture."""

    title: str
    caption: str
    versions: list[str]
    specification: dict[str, Any]


@dataclass(frozen=True)
class VersionsReport:
    """The results, in the order of the versions; the pictures, and the page."""

    results: list[VersionResult]
    pictures: list[VersionPicture]
    #: The page, which loads nothing from the network.
    html: str


#: A version, and its predictions.
_Measured = tuple[VersionResult, Any]


@dataclass(frozen=True)
class _Section:
    """A part of the page: one version, or a version and the first."""

    names: list[str]
    verdict: str
    rows: list[dict[str, Any]]
    #: Rows of a second table; empty without independent labels.
    labels: list[dict[str, Any]]
    pictures: list[ReportPicture]
    segments: Sequence[UnderShift] = ()


def create_versions_report(
    source: Source,
    versions: Mapping[str, Callable[[], Scores]],
    *,
    input: Input,
    class_names: Sequence[str] | None = None,
    warnings: Sequence[str] = (),
    segments: Any = None,
    results: Mapping[str, VersionResult] | None = None,
    choice: MapChoice | None = None,
    further_sources: Mapping[str, Source] | None = None,
    title: str,
    progress: Callable[[str], None] = lambda text: None,
) -> VersionsReport:
    """Measure each version, compare it with the first, and draw both.

    Two versions are in memory at a time.

    Parameters
    ----------
    source: the data set, with labels; those of independent labels are (N, K).
    versions: a function for each version by its name; it returns logits or probabilities of the
        rows of `source`. At least one.
    input: whether `source` has logits or probabilities.
    class_names: a name for each class or label; numbers by default.
    warnings: sentences for the page.
    segments: of the rows of one label each, as in `recalib.evaluate`; the page has tables of them.
    results: by name, if the rows of `source` are a sample that is only drawn.
    choice: a comparison of maps for the page, if the versions are not those of a model.
    further_sources: other data for the table of sources, by role.
    title: the title of the page.
    progress: called with a message before each version.

    Raises
    ------
    InputError: rows are not valid.
    """
    labels = source.data.labels
    all_results: list[VersionResult] = []
    sections: list[_Section] = []
    first: _Measured | None = None
    for name, scores in versions.items():
        progress(f"measuring {name}")
        known = (results or {}).get(name)
        measured = _measure(name, *scores(), labels, first, known, class_names, segments)
        all_results.append(measured[0])
        if len(versions) == 1 or first is not None:
            progress(f"drawing {name}")
            sections.append(_section([first or measured, measured], class_names))
        first = first or measured
    html = render(
        "versions.html",
        series=min(2, len(versions)),
        metrics=all_results[-1].metrics,
        title=title,
        classes=source.data.logits.shape[1],
        input=input,
        warnings=warnings,
        sections=sections,
        error=headline_error(all_results[-1].metrics),
        drawn_rows=len(labels),
        outputs="labels" if labels.ndim == 2 else "classes",
        choice=choice,
        sources=[
            *(describe_source(role, data) for role, data in (further_sources or {}).items()),
            describe_source("data set" if choice is None else "test", source),
        ],
    )
    return VersionsReport(all_results, list(_specifications(sections)), html)


def _measure(
    name: str,
    kind: Input,
    values: Floats,
    labels: Any,
    first: _Measured | None,
    result: VersionResult | None,
    class_names: Sequence[str] | None,
    segments: Any,
) -> _Measured:
    """Return a version with its changes from the first; `result` is one that is known."""
    if labels.ndim == 2:
        of_labels = LabelPredictions.from_scores(values, labels, input=kind)
        return measure_labels(name, of_labels, class_names, first, _LEVEL), of_labels
    scores: dict[str, Any] = {kind: values}
    predictions = as_predictions(labels, **scores)
    if result is not None:
        return result, predictions
    metrics = measure_all(predictions, level=_LEVEL)
    parts: Mapping[str, Evaluation[Estimate]] = {}
    if segments is not None:
        names = set_metrics(predictions.classes)
        parts = evaluate(labels, **scores, metrics=names, level=_LEVEL, segments=segments).segments
    changes = {}
    if first is not None and len(labels) > 1:
        before, reference = first
        changes = paired_changes(reference, predictions, before.metrics, metrics, level=_LEVEL)
    return VersionResult(name, dict(metrics), changes, segments=parts), predictions


def _section(measured: Sequence[_Measured], class_names: Sequence[str] | None) -> _Section:
    """Return the part of the page on the first version and another, which may be the same."""
    (before, _), (after, _) = measured
    series = {result.name: predictions for result, predictions in measured}
    verdict = version_sentence(before.name, after.name, after.changes) if after.changes else ""
    if not after.labels:
        rows = metric_rows(before.metrics, after.metrics, after.changes)
        pictures = draw_pictures(series, class_names, ())
        segments = segments_of(before.segments, after.segments)
        return _Section(list(series), verdict, rows, [], pictures, segments)
    if verdict:
        verdict = f"{verdict} These are means over {len(after.labels)} labels."
    return _Section(
        list(series),
        verdict,
        label_metric_rows(before, after),
        label_table(before, after, series[after.name]),
        draw_label_pictures(series, class_names),
    )


def _specifications(sections: Sequence[_Section]) -> Iterator[VersionPicture]:
    for section in sections:
        for picture in section.pictures:
            for specification in picture.specifications:
                yield VersionPicture(picture.title, picture.caption, section.names, specification)
