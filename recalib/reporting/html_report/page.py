"""Create a self-contained report from two files of logits and labels."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recalib.calibrator import Calibrator
from recalib.core.arrays import log_probabilities
from recalib.core.card import PredictionPolicy
from recalib.files import LabelledData
from recalib.fitting.auto_choice import winner_sentences
from recalib.fitting.comparison import Comparison, compare
from recalib.maps.stack import Stack
from recalib.metrics import Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.headline import headline_error, headline_metrics
from recalib.metrics.paired import Change, paired_changes
from recalib.reporting.html_report.accuracy_cost import (
    best_maps,
    measure_accuracy_cost,
)
from recalib.reporting.html_report.changes import verdict_sentence
from recalib.reporting.html_report.findings import (
    Measurements,
    RowCounts,
    count_shared_rows,
    findings,
)
from recalib.reporting.html_report.pictures import draw_pictures
from recalib.reporting.html_report.rendering import (
    Page,
    Source,
    describe_source,
    metric_rows,
    render,
)
from recalib.reporting.html_report.shift import (
    UnderShift,
    about_shift,
    measure_shift,
    segments_of,
)
from recalib.reporting.terminal import is_percentage

#: Confidence of all intervals.
LEVEL = 0.95
#: Labels of the two predictions in plots, and of the test set among shifted test sets.
_SERIES = ("uncalibrated", "calibrated")
UNSHIFTED = "test"


@dataclass(frozen=True, repr=False)
class Report(Page):
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
    shift: Sequence[UnderShift]
    html: str

    def __repr__(self) -> str:
        return f"<Report: {self.verdict or self.comparison.choice.reason}>"


def create_report(
    validation: Source,
    test: Source,
    pairs: Sequence[tuple[str, str]],
    *,
    input: Literal["logits", "probabilities"] = "logits",
    predictions: PredictionPolicy = "may_change",
    class_names: Sequence[str] | None = None,
    shifted: Mapping[str, Source] | None = None,
    segments: Any = None,
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
    predictions: which predictions the recommended map may change, as in `Auto`.
    class_names: a name for each class; numbers by default.
    shifted: further test sets by name, in order of increasing distance from validation; with
        them the page has a picture and a table of both predictions on each.
    segments: of the test rows, as in `recalib.evaluate`; the page has a table of them.
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
        predictions=predictions,
        level=LEVEL,
        progress=progress,
    )
    progress("measuring")
    labels = test.data.labels
    scores: dict[str, Any] = {input: test.data.logits}
    answer = comparison.recommended.predict(test.data.logits, input=input)
    metrics_before = evaluate(labels, **scores, level=LEVEL, segments=segments)
    metrics_after = evaluate(labels, probabilities=answer, level=LEVEL, segments=segments)
    before, after = predictions_of(comparison.recommended, test.data, input)
    changes = {}
    if len(labels) > 1:
        changes = paired_changes(before, after, metrics_before, metrics_after, level=LEVEL)
    maps = best_maps(comparison) if changes else None
    sets = {}
    if shifted:
        sets = {UNSHIFTED: test.data} | {name: source.data for name, source in shifted.items()}
    return create_page(
        Measurements(
            comparison,
            RowCounts.of(validation.data),
            RowCounts.of(test.data),
            count_shared_rows(validation.data.logits, test.data.logits),
            metrics_before,
            metrics_after,
            changes,
            int((before.predicted != after.predicted).sum()),
            None if maps is None else measure_accuracy_cost(maps, test.data, input, LEVEL),
            measure_shift(sets, comparison.recommended, input, LEVEL),
            segments_of(metrics_before.segments, metrics_after.segments),
        ),
        validation,
        test,
        (before, after),
        input=input,
        class_names=class_names,
        shifted=shifted,
        title=title,
        progress=progress,
    )


def predictions_of(
    calibrator: Calibrator, data: LabelledData, input: Literal["logits", "probabilities"]
) -> tuple[Predictions, Predictions]:
    """Return the predictions of rows without and with a calibrator."""
    z = data.logits if input == "logits" else log_probabilities(data.logits)
    answer = calibrator.predict(data.logits, input=input)
    return (
        Predictions.from_logits(z, data.labels),
        Predictions.from_probabilities(answer, data.labels),
    )


def create_page(
    measured: Measurements,
    validation: Source,
    test: Source,
    drawn: tuple[Predictions, Predictions],
    *,
    input: Literal["logits", "probabilities"],
    class_names: Sequence[str] | None,
    shifted: Mapping[str, Source] | None,
    title: str,
    progress: Callable[[str], None],
) -> Report:
    """Draw, and write the page from its figures.

    Parameters
    ----------
    drawn: the predictions in the pictures, before and after: all test rows or a sample.
    """
    comparison = measured.comparison

    def name_of(k: int) -> str:
        return f"class {k}" if class_names is None else class_names[k]

    same_file = validation.digest == test.digest
    warnings = findings(measured, same_file=same_file, name_of=name_of)
    warnings += about_shift(measured.shift)
    progress("drawing")
    identity = comparison.choice.map == "identity"
    cost, changes = measured.cost, measured.changes
    verdict = "" if identity or not changes else verdict_sentence(changes)
    series = dict(zip(_SERIES, drawn[:1] if identity else drawn, strict=False))
    page = render(
        "page.html",
        series=len(series),
        metrics=measured.after,
        title=title,
        sources=[
            describe_source("validation", validation),
            describe_source(UNSHIFTED, test),
            *(describe_source(name, source) for name, source in (shifted or {}).items()),
        ],
        shift=measured.shift,
        segments=measured.segments,
        outputs="classes",
        classes=len(measured.test.counts),
        input=input,
        statement=_statement(measured),
        identity=identity,
        verdict=verdict,
        cost=cost,
        choice=comparison.choice,
        winners=winner_sentences(comparison.choice),
        recommended=comparison.recommended.card,
        command=_command(comparison, validation, input),
        warnings=warnings,
        left_out=comparison.left_out,
        metric_rows=metric_rows(measured.before, measured.after, changes),
        headline=_headline(measured.before, measured.after, changes),
        cost_metrics=metric_rows(cost.before, cost.after, cost.changes) if cost else [],
        maps=comparison.entries,
        columns=[(name, is_percentage(name)) for name in headline_metrics(measured.after)],
        error=headline_error(measured.after),
        drawn_rows=len(drawn[0]),
        test_rows=measured.test.rows,
        pictures=draw_pictures(series, class_names, measured.shift),
    )
    return Report(
        comparison,
        warnings,
        dict(measured.before),
        dict(measured.after),
        changes,
        verdict,
        measured.shift,
        page,
    )


def _statement(measured: Measurements) -> dict[str, float]:
    """Return the figures in the first sentence of the page."""
    before, after = measured.before, measured.after
    if (error := headline_error(before)) == "binary_ece":
        return {
            "frequency": measured.test.counts[1] / measured.test.rows,
            "error": before[error].value,
            "error_after": after[error].value,
        }
    return {
        "accuracy": before["accuracy"].value,
        "confidence": before["mean_confidence"].value,
        "accuracy_after": after["accuracy"].value,
        "confidence_after": after["mean_confidence"].value,
    }


def _command(comparison: Comparison, validation: Source, input: str) -> str:
    card = comparison.recommended.card
    options = card.options if card.map == Stack.name else {}  # others are fitted by default ones
    if not validation.is_file:
        more = f", **{options!r}" if options else ""
        call = f'recalib.fit({input}, labels, "{card.map}", "{card.objective}", input="{input}"'
        return f"{call}{more})"
    data = validation.locations or (validation.name,)
    parts = ["recalib", "fit", *data, "--map", card.map, "--objective", card.objective]
    for name, value in options.items():
        parts += ["--option", f"{name}={json.dumps(value)}"]
    if input != "logits":
        parts += ["--input", input]
    return shlex.join([*parts, "-o", f"{card.map}.calib"])


def _headline(
    before: Mapping[str, Estimate], after: Mapping[str, Estimate], changes: Mapping[str, Change]
) -> list[dict[str, Any]]:
    """Return the rows at the top of the page; beside the class-wise error, the plug-in error."""
    rows = {row["name"]: row | {"note": ""} for row in metric_rows(before, after, changes)}
    names = [name for name in headline_metrics(after) if name not in ("accuracy", "nll", "brier")]
    plug_in = after["classwise_ece"]
    floor = "" if plug_in.floor is None else f", noise floor {plug_in.floor:.2%}"
    rows["classwise_ce"]["note"] = f"plug-in classwise_ece: {plug_in.value:.2%}{floor}"
    return [rows[name] for name in [*names, "nll", "brier"]]
