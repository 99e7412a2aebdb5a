"""`recalib fit`: fit a calibrator to validation logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import (
    candidates_table,
    metrics_table,
    narrow_table,
    print_json,
    progress,
    say,
    warn,
)

if TYPE_CHECKING:
    from recalib.core.card import Card, MetricValue, Rejection
    from recalib.segments import SegmentSummary

#: Parameters with more values are shown as a range.
_MAX_SHOWN_VALUES = 12


def fit(
    data: options.LabelledData,
    output: options.OutputFile,
    map: Annotated[
        str, typer.Option(help="The post-hoc map; `auto` chooses one by cross-validation.")
    ] = "temperature",
    objective: Annotated[str, typer.Option(help="The objective that the fit minimises.")] = "nll",
    predictions: options.PredictionsPolicy = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the map or objective; repeatable."),
    ] = None,
    weights: options.Weights = None,
    weight_kind: options.WeightKind = "survey",
    start: Annotated[
        Path | None,
        typer.Option(help="Start from this parameter file, a fit of the same map and options."),
    ] = None,
    task: options.Task = "multiclass",
    input: Annotated[
        Literal["logits", "probabilities"] | None,
        typer.Option(help="Logits by default, with an error if they surely are probabilities."),
    ] = None,
    scores: options.Scores = None,
    label: options.Label = None,
    class_names: options.ClassNames = None,
    separator: options.Separator = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="`cuda` or `cpu`: sum over rows there by torch, in chunks; see docs/maps.md."
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure",
            "--metrics/--no-metrics",
            help="Measure the rows before and after the map, with 95% intervals.",
        ),
    ] = True,
    resampled: Annotated[
        str | None,
        typer.Option(
            help="How the training was rebalanced: `rate=0.1` if these rows are too, "
            "`class_weight=1,9` or `class_weight=balanced` if they are as in use."
        ),
    ] = None,
    sets: Annotated[
        Literal["lac", "aps", "raps"] | None,
        typer.Option(help="Also fit thresholds of prediction sets, on half of the rows."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="The probability with which a set holds the label; 0.9 by default."),
    ] = None,
    sets_by: Annotated[
        Literal["all", "class", "cluster"],
        typer.Option(help="One threshold of sets for all classes, or one for each, or clusters."),
    ] = "all",
    sets_folds: Annotated[
        int | None,
        typer.Option(help="For few rows: all fit the map and out-of-fold sets, approximately."),
    ] = None,
    sets_penalty: Annotated[
        float | None,
        typer.Option(help="Of raps: what each later class adds; 0.01 by default.", min=0),
    ] = None,
    sets_k_reg: Annotated[
        int | None,
        typer.Option(help="Of raps: the first classes without it; 5 by default.", min=0),
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(
            help="Also fit the confidence below which rows are rejected, on half of the rows: of "
            "accepted ones at most this share is wrong."
        ),
    ] = None,
    segments: options.Segments = None,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Fit a calibrator to validation logits and save it.

    Several files are read in bounded memory, with all maps.
    """
    from recalib import files
    from recalib.api import load
    from recalib.core.card import DataSummary
    from recalib.files.read_columns import read_columns
    from recalib.fitting.auto_choice import winner_sentences
    from recalib.fitting.fit import fit as fit_calibrator
    from recalib.fitting.request import check_request, resolve_fit
    from recalib.fitting.thresholds import describe_thresholds
    from recalib.fitting.validation_error import validation_warnings
    from recalib.scale import fit as fit_files
    from recalib.segments import fit_segments
    from recalib.sets import describe_sets
    from recalib.sets.conformal import resolve_fields
    from recalib.sets.rejection import resolve_rejection
    from recalib.shift.prior import parse_resampled

    needs_rows = task if task == "multilabel" else None
    set_options = resolve_fields(sets, coverage, sets_by, sets_penalty, sets_k_reg)
    rejection = None if max_risk is None else resolve_rejection(max_risk)
    of_sets = {"sets": sets, "coverage": coverage, "sets_folds": sets_folds}
    of_sets["max_risk"] = max_risk
    rebalanced = None if resampled is None else parse_resampled(resampled)
    of_one_file = {"device": device, "task": needs_rows, "resampled": resampled}
    path = arguments.only_file(data, cluster, **of_one_file, **of_sets, segments=segments)
    segment_names = arguments.split_names(segments)
    if segment_names is not None and predictions == "keep_order":
        accepted = "may_change or keep: rows of different segments change their order"
        raise InputError("predictions", found="keep_order, with segments", accepted=accepted)
    for name, other in {**of_sets, "task": needs_rows}.items():
        if segment_names is not None and other is not None:
            raise InputError("segments", found=f"{name} {other} too", accepted="one of the two")
    column = weights if path is not None else None
    selection = arguments.selection_of(scores, label, column, separator, class_names)
    arguments.check_output_path("output", output, *([] if path is None else [path]))
    fit_options = _parse_options(option or [])
    if predictions is not None:
        fit_options["predictions"] = predictions
    is_multilabel = task == "multilabel"
    # Report a typo before a large file is read.
    check_request(resolve_fit(map, objective, fit_options, task), device=device)
    sample_weights = None if path is None else arguments.read_weights(weights)
    start_calibrator = load(start) if start is not None else None
    with progress("fit", quiet=json_output) as update:

        def report(stage: str, iteration: int, value: float) -> None:
            update(f"{stage}, iteration {iteration}, objective {value:.5f}")

        fit_options |= {"input": input, "measure": measure, "start": start_calibrator}
        names = arguments.class_names_of(selection)
        fit_options |= {"weight_kind": weight_kind, "class_labels": names}
        update("reading")
        if path is None:
            calibrator = fit_files(
                arguments.select_in(data, selection),
                map,
                objective,
                sample_weight=weights,
                cluster=arguments.cluster_name(cluster),
                progress=report,
                **fit_options,
            )
        else:
            rows = arguments.read_file(path, selection, input=input or "logits", task=task)
            row_weights = rows.weights if sample_weights is None else sample_weights
            if segment_names is not None:
                segment_columns = read_columns(path, segment_names, selection.separator)
            summary = DataSummary(rows=len(rows.logits), digest=files.digest(path), name=path.name)
            calibrator = fit_calibrator(
                rows.logits,
                rows.labels,
                map,
                objective,
                task=task,
                weights=row_weights,
                device=device,
                resampled=rebalanced,
                sets=set_options,
                sets_folds=sets_folds,
                max_risk=rejection,
                data=summary,
                progress=report,
                **fit_options,
            )
            if segment_names is not None:
                update("segments")
                calibrator = fit_segments(
                    calibrator,
                    rows.logits,
                    rows.labels,
                    segment_columns,
                    input=input,
                    sample_weight=row_weights,
                    weight_kind=weight_kind,
                    predictions="keep" if predictions == "keep" else "may_change",
                )
    calibrator.save(output)
    card = calibrator.card
    about_monitoring = [] if is_multilabel else validation_warnings(card, "this calibrator")
    if json_output:
        parameters = {name: value.tolist() for name, value in calibrator.parameters.items()}
        answer = {"output": str(output), "parameters": parameters, "card": card.to_dict()}
        print_json({**answer, "warnings": about_monitoring})
        return
    warn(*card.fit.bounds_reached, *card.fit.warnings, *about_monitoring)
    if card.choice is not None:
        say(candidates_table(card.choice))
        say(*winner_sentences(card.choice))
        say(card.choice.reason)
    for name, value in calibrator.common.parameters.items():
        say(f"{name}: {_format_parameter(value)}")
    columns = "labels, means over labels" if is_multilabel else "classes"
    size = f"{card.data.rows} rows, {card.classes} {columns}"
    title = f"{card.map} by {card.objective} on {size} (in sample)"
    say(metrics_table(_short(card), title) if measure else title)
    if text := describe_thresholds(calibrator):
        say(text)
    if card.sets is not None:
        say(describe_sets(card.sets))
    if card.rejection is not None:
        say(_describe_rejection(card.rejection))
    if card.segments is not None:
        _say_segments(card.segments)
    say(f"saved {output}")


def _say_segments(summary: SegmentSummary) -> None:
    table = narrow_table("segments, on held-out folds", "segment", "rows", "NLL lower by")
    for part in summary.segments:
        error = "" if part.standard_error is None else f" ± {part.standard_error:.5f}"
        table.add_row(f"{part.column}={part.value}", f"{part.rows}", f"{part.gain:.5f}{error}")
    say(table)
    gain = f"NLL lower by {summary.gain:.5f} ± {summary.standard_error:.5f} on held-out folds"
    if summary.form == "none":
        say(f"segments do not help ({gain}): all rows have the common map")
    else:
        say(f"offsets by segment: {summary.form}, strength {summary.strength:g}; {gain}")


def _describe_rejection(rejection: Rejection) -> str:
    share = rejection.accepted / rejection.rows
    return (
        f"rows with a confidence of at least {rejection.threshold:g} are accepted, {share:.1%} of "
        f"{rejection.rows} rows that the map has not seen: of new ones at most "
        f"{rejection.risk:.1%} is wrong, with a probability of {rejection.sureness:.4g}"
    )


def _short(card: Card) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of a short table, before and after the map; the card has all."""
    from recalib.metrics.headline import short_metrics

    names = short_metrics(card.classes) if card.task == "multiclass" else card.metrics["after"]
    return {
        stage: {name: metrics[name] for name in names if name in metrics}
        for stage, metrics in card.metrics.items()
    }


def _parse_options(pairs: list[str]) -> dict[str, Any]:
    """Return NAME=VALUE pairs as a dictionary; a value that is not JSON is text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError("option", found=repr(pair), accepted="NAME=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _format_parameter(value: Any) -> str:
    """Return a parameter on one line; a long one as its range."""
    flat = value.reshape(-1)
    if flat.size <= _MAX_SHOWN_VALUES:
        return ", ".join(f"{number:#.5g}" for number in flat)
    return f"{flat.size} values from {flat.min():.5g} to {flat.max():.5g}"
