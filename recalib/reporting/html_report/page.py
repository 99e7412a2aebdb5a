"""Create a self-contained report from two files of logits and labels."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np

from recalib.arrays import log_probabilities
from recalib.errors import InputError
from recalib.files import LabelledData, write_atomically
from recalib.fitting.comparison import Comparison, compare
from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import Change, paired_changes
from recalib.reporting.html_report.accuracy_cost import measure_accuracy_cost
from recalib.reporting.html_report.changes import (
    VERDICT_WORDS,
    change_text,
    interval_text,
    verdict_sentence,
)
from recalib.reporting.html_report.findings import Evidence, findings
from recalib.reporting.html_report.pictures import draw_pictures
from recalib.reporting.html_report.shift import UnderShift, about_shift, measure_shift
from recalib.reporting.plots.style import DARK_COLOURS, GAP, series_colours
from recalib.terminal import is_percentage

__all__ = ["Report", "Source", "create_report"]

_LEVEL = 0.95
#: Metrics in the table of maps; the first table of the page has all metrics.
_COLUMNS = ("accuracy", "nll", "ece", "classwise_ce")
#: Metrics at the top of the page.
_HEADLINE = ("ece", "classwise_ce", "nll", "brier")
#: Labels of the two predictions in plots, and of the test set among shifted test sets.
_SERIES = ("uncalibrated", "calibrated")
_UNSHIFTED = "test"


@dataclass(frozen=True)
class Source:
    """Input from a file, or from arrays."""

    name: str
    digest: str
    data: LabelledData
    is_file: bool = True


@dataclass(frozen=True, repr=False)
class Report:
    """A page and its main results as values; a notebook shows the page."""

    comparison: Comparison
    warnings: list[str]
    before: dict[str, Estimate]
    after: dict[str, Estimate]
    #: After minus before on the same rows; empty with one test row.
    changes: dict[str, Change]
    #: Whether calibration helps, in a sentence; empty without changes.
    verdict: str
    #: The test set, then the shifted test sets; empty without shifted test sets.
    shift: list[UnderShift]
    #: The page, which loads nothing from the network.
    html: str

    def __repr__(self) -> str:
        return f"<Report: {self.verdict or self.comparison.choice.reason}>"

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the page and of the notebook apart.
        page = escape(self.html)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page atomically.

        Raises
        ------
        InputError: the file name does not end in .html, or the file cannot be written.
        """
        if Path(path).suffix != ".html":
            raise InputError("path", found=str(path), accepted="a name that ends in .html")
        write_atomically(Path(path), self.html.encode())


def create_report(
    validation: Source,
    test: Source,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Literal["logits", "probabilities"] = "logits",
    preserve_accuracy: bool = True,
    class_names: Sequence[str] | None = None,
    shifted: Mapping[str, Source] | None = None,
    title: str = "Calibration report",
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Fit, compare, measure and draw; the result has the page.

    Parameters
    ----------
    validation: the data for fitting.
    test: the data for measuring.
    pairs: the maps and objectives to compare.
    input: whether the files hold logits or probabilities.
    preserve_accuracy: recommend only maps that never change predictions.
    class_names: a name for each class; numbers by default.
    shifted: further test sets by name, in order of increasing distance from validation; with
        them the page has a picture and a table of both predictions on each.
    title: the title of the page.
    progress: called with a message at each step.

    Raises
    ------
    InputError: rows are not valid.
    """
    comparison = compare(
        validation.data,
        test.data,
        pairs,
        input=input,
        preserve_accuracy=preserve_accuracy,
        level=_LEVEL,
        progress=progress,
    )
    progress("measuring")
    labels = test.data.labels
    scores: dict[str, Any] = {input: test.data.logits}
    answer = comparison.recommended.predict(test.data.logits, input=input)
    metrics_before = evaluate(labels, **scores, level=_LEVEL)
    metrics_after = evaluate(labels, probabilities=answer, level=_LEVEL)
    z = test.data.logits if input == "logits" else log_probabilities(test.data.logits)
    before = Predictions.from_logits(z, labels)
    after = Predictions.from_probabilities(answer, labels)
    changes = {}
    if len(labels) > 1:
        changes = paired_changes(before, after, metrics_before, metrics_after, level=_LEVEL)
    cost = measure_accuracy_cost(comparison, test.data, input, _LEVEL) if changes else None

    def name_of(k: int) -> str:
        return f"class {k}" if class_names is None else class_names[k]

    shift = []
    if shifted:
        sets = {_UNSHIFTED: test.data} | {
            name: shifted_set.data for name, shifted_set in shifted.items()
        }
        shift = measure_shift(sets, comparison.recommended, input, _LEVEL)
    warnings = findings(
        Evidence(
            validation.data,
            test.data,
            same_file=validation.digest == test.digest,
            comparison=comparison,
            before=before,
            after=after,
            metrics_after=metrics_after,
            name_of=name_of,
        )
    )
    warnings += about_shift(shift)
    progress("drawing")
    identity = comparison.choice.map == "identity"
    verdict = "" if identity or not changes else verdict_sentence(changes)
    series = dict(zip(_SERIES, (before,) if identity else (before, after), strict=False))
    page = _environment().get_template("page.html").render(
        title=title,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        library=version("recalib"),
        sources=[
            _described("validation", validation),
            _described(_UNSHIFTED, test),
            *(_described(name, source) for name, source in (shifted or {}).items()),
        ],
        shift=shift,
        classes=test.data.logits.shape[1],
        input=input,
        statement=_statement(before, after),
        identity=identity,
        verdict=verdict,
        cost=cost,
        choice=comparison.choice,
        recommended=comparison.recommended.card,
        command=_command(comparison, validation, input),
        warnings=warnings,
        left_out=comparison.left_out,
        metrics=_metric_rows(metrics_before, metrics_after, changes),
        headline=_headline(metrics_before, metrics_after, changes),
        cost_metrics=_metric_rows(cost.before, cost.after, cost.changes) if cost else [],
        has_floor=any(estimate.floor is not None for estimate in metrics_after.values()),
        maps=_map_rows(comparison),
        columns=[(name, is_percentage(name)) for name in _COLUMNS],
        pictures=draw_pictures(series, class_names, shift),
        colours=series_colours(len(series)),
        gap=GAP,
        dark_colours=DARK_COLOURS,
        words=VERDICT_WORDS,
    )  # fmt: skip
    return Report(
        comparison, warnings, metrics_before, metrics_after, changes, verdict, shift, page
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recalib.reporting.html_report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["interval"] = _interval
    environment.filters["number"] = _number
    environment.filters["change"] = lambda row: change_text(row["name"], row["change"])
    environment.filters["change_interval"] = lambda row: interval_text(row["name"], row["change"])
    return environment


def _described(role: str, source: Source) -> dict[str, Any]:
    counts = np.bincount(source.data.labels, minlength=source.data.logits.shape[1])
    return {
        "role": role,
        "name": source.name,
        "digest": source.digest,
        "rows": len(source.data.labels),
        "dtype": str(source.data.logits.dtype),
        "seen": int((counts > 0).sum()),
        "least": int(counts.min()),
        "most": int(counts.max()),
    }


def _statement(before: Predictions, after: Predictions) -> dict[str, Any]:
    """Return the figures in the first sentence of the page."""
    return {
        "accuracy": float(before.correct.mean()),
        "confidence": float(before.confidences.mean(dtype=np.float64)),
        "accuracy_after": float(after.correct.mean()),
        "confidence_after": float(after.confidences.mean(dtype=np.float64)),
    }


def _command(comparison: Comparison, validation: Source, input: str) -> str:
    card = comparison.recommended.card
    if not validation.is_file:
        return f'recalib.fit({input}, labels, "{card.map}", "{card.objective}", input="{input}")'
    parts = ["recalib", "fit", validation.name, "--map", card.map, "--objective", card.objective]
    if input != "logits":
        parts += ["--input", input]
    return shlex.join([*parts, "-o", f"{card.map}.calib"])


def _metric_rows(
    before: Mapping[str, Estimate], after: Mapping[str, Estimate], changes: Mapping[str, Change]
) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": METRICS[name].summary,
            "before": before[name],
            "after": after[name],
            "change": changes.get(name),
            "percent": is_percentage(name),
        }
        for name in after
    ]


def _headline(
    before: Mapping[str, Estimate], after: Mapping[str, Estimate], changes: Mapping[str, Change]
) -> list[dict[str, Any]]:
    """Return the rows of `_HEADLINE`; beside the class-wise error, the plug-in error."""
    rows = {row["name"]: row | {"note": ""} for row in _metric_rows(before, after, changes)}
    plug_in = after["classwise_ece"]
    floor = "" if plug_in.floor is None else f", noise floor {plug_in.floor:.2%}"
    rows["classwise_ce"]["note"] = f"plug-in classwise_ece: {plug_in.value:.2%}{floor}"
    return [rows[name] for name in _HEADLINE]


def _map_rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for entry in comparison.entries:
        card = entry.calibrator.card
        rows.append(
            {
                "map": card.map,
                "objective": card.objective,
                "summary": entry.calibrator.map.summary,
                "seconds": card.fit.seconds,
                "keeps": entry.calibrator.map.preserves_accuracy,
                "metrics": entry.metrics,
                "held_out": entry.held_out,
                "warnings": [*card.fit.bounds_reached, *card.fit.warnings],
            }
        )
    return rows


def _number(value: float, percent: bool) -> str:
    return f"{value:.2%}" if percent else f"{value:.4f}"


def _interval(estimate: Estimate, percent: bool) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{_number(estimate.low, percent)} to {_number(estimate.high, percent)}"
