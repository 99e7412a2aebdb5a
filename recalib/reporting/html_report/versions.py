"""Measure and draw several predictions of one data set: the versions of a model's calibrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recalib.arrays import Floats
from recalib.files import Input
from recalib.metrics import Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import Change, paired_changes
from recalib.reporting.html_report.changes import version_sentence
from recalib.reporting.html_report.pictures import Picture, draw_pictures
from recalib.reporting.html_report.rendering import Source, describe_source, metric_rows, render

__all__ = ["VersionPicture", "VersionResult", "VersionsReport", "create_versions_report"]

_LEVEL = 0.95

#: What the numbers of a version are, and the numbers (N, K).
Scores = tuple[Input, Floats]


@dataclass(frozen=True)
class VersionResult:
    """The metrics of a version, and their changes from the first version on the same rows."""

    name: str
    metrics: dict[str, Estimate]
    #: Empty for the first version, and with one row.
    changes: dict[str, Change]


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


@dataclass(frozen=True, eq=False)
class _Measured:
    """A version with its predictions."""

    result: VersionResult
    predictions: Predictions


@dataclass(frozen=True)
class _Section:
    """A part of the page: one version, or a version and the first."""

    names: list[str]
    verdict: str
    rows: list[dict[str, Any]]
    pictures: list[Picture]


def create_versions_report(
    source: Source,
    versions: Mapping[str, Callable[[], Scores]],
    *,
    input: Input,
    class_names: Sequence[str] | None = None,
    warnings: Sequence[str] = (),
    title: str,
    progress: Callable[[str], None] = lambda text: None,
) -> VersionsReport:
    """Measure each version, compare it with the first, and draw both.

    Two versions are in memory at a time.

    Parameters
    ----------
    source: the data set, with labels.
    versions: a function for each version by its name; it returns logits or probabilities of the
        rows of `source`. At least one.
    input: whether `source` has logits or probabilities.
    class_names: a name for each class; numbers by default.
    warnings: sentences for the page.
    title: the title of the page.
    progress: called with a message before each version.

    Raises
    ------
    InputError: rows are not valid.
    """
    labels = source.data.labels
    results: list[VersionResult] = []
    sections: list[_Section] = []
    for name, measured in _measure_all(labels, versions, progress):
        results.append(measured[-1].result)
        if len(measured) == len(versions) or len(measured) == 2:
            progress(f"drawing {name}")
            sections.append(_section(measured, class_names))
    html = render(
        "versions.html",
        series=min(2, len(versions)),
        metrics=results[-1].metrics,
        title=title,
        classes=source.data.logits.shape[1],
        input=input,
        warnings=warnings,
        sections=sections,
        sources=[describe_source("data set", source)],
    )
    return VersionsReport(results, list(_specifications(sections)), html)


def _measure_all(
    labels: Any, versions: Mapping[str, Callable[[], Scores]], progress: Callable[[str], None]
) -> Iterator[tuple[str, list[_Measured]]]:
    """Yield the first version, then each other one with the first before it."""
    first: _Measured | None = None
    for name, scores in versions.items():
        progress(f"measuring {name}")
        measured = _measure(name, *scores(), labels, first)
        yield name, [measured] if first is None else [first, measured]
        first = first or measured


def _measure(
    name: str, kind: Input, values: Floats, labels: Any, first: _Measured | None
) -> _Measured:
    metrics = evaluate(labels, **{kind: values}, level=_LEVEL)  # type: ignore[arg-type]
    if kind == "logits":
        predictions = Predictions.from_logits(values, labels)
    else:
        predictions = Predictions.from_probabilities(values, labels)
    changes = {}
    if first is not None and len(labels) > 1:
        changes = paired_changes(
            first.predictions, predictions, first.result.metrics, metrics, level=_LEVEL
        )
    return _Measured(VersionResult(name, dict(metrics), changes), predictions)


def _section(measured: list[_Measured], class_names: Sequence[str] | None) -> _Section:
    """Return the part of the page on one version, or on the first and another."""
    before, after = measured[0].result, measured[-1].result
    series = {item.result.name: item.predictions for item in measured}
    return _Section(
        list(series),
        version_sentence(before.name, after.name, after.changes) if after.changes else "",
        metric_rows(before.metrics, after.metrics, after.changes),
        draw_pictures(series, class_names, ()),
    )


def _specifications(sections: Sequence[_Section]) -> Iterator[VersionPicture]:
    for section in sections:
        for picture in section.pictures:
            for specification in picture.specifications:
                yield VersionPicture(picture.title, picture.caption, section.names, specification)
