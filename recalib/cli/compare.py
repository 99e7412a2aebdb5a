"""`recalib compare`: fit several maps and measure them on a second file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from recalib.cli import arguments, options
from recalib.cli.comparison import compatible_pairs, local_paths, read_labelled
from recalib.reporting.terminal import (
    candidates_table,
    comparison_table,
    metrics_table,
    print_json,
    progress,
    say,
    warn,
)

if TYPE_CHECKING:
    from rich.table import Table

    from recalib.core.card import CandidateResult
    from recalib.files import DataSelection, LabelledData
    from recalib.fitting.comparison import Comparison
    from recalib.metrics import Estimate


def compare(
    validation: options.ValidationData,
    test: options.TestData,
    maps: options.MapNames = "",
    objectives: options.ObjectiveNames = "nll",
    predictions: options.PredictionsPolicy = None,
    preserve_accuracy: options.PreserveAccuracy = None,
    input: options.InputKind = "logits",
    add_validation: options.MoreValidationData = None,
    add_test: options.MoreTestData = None,
    scores: options.Scores = None,
    label: options.Label = None,
    separator: options.Separator = None,
    weights: options.Weights = None,
    test_weights: Annotated[
        str | None,
        typer.Option(metavar="NAME|SOURCE", help="Weights of the test rows, as --weights."),
    ] = None,
    weight_kind: options.WeightKind = "survey",
    metrics: options.MetricNames = None,
    all_metrics: options.AllMetrics = False,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Fit several maps on one file and measure them on another.

    One map is recommended by cross-validation on the first file, as `fit --map auto` chooses; the
    second file has no influence. Incompatible pairs of map and objective are left out, and so are
    maps that the data is too large for. Folders, globs and URLs are read in bounded memory, with
    the maps that `fit` takes there. `--weights` are those of the first file.
    """
    from recalib.fitting.auto import resolve_predictions
    from recalib.fitting.auto_choice import winner_sentences
    from recalib.metrics import METRICS
    from recalib.scale import compare as compare_at_scale

    policy = resolve_predictions(predictions, preserve_accuracy)
    pairs = compatible_pairs(maps, objectives)
    known = [name for name, metric in METRICS.items() if not metric.on_request]
    shown = arguments.metric_names(metrics, all_metrics, json_output, known)
    validation_data, test_data = [validation, *(add_validation or [])], [test, *(add_test or [])]
    selection = arguments.selection_of(scores, label, separator=separator)
    with progress("compare", quiet=json_output) as update:
        shared: dict[str, Any] = {"input": input, "predictions": policy}
        # The table has the floor of the error.
        shared["level"] = None if shown is None else 0.95
        shared |= {"weight_kind": weight_kind, "progress": update}
        paths = local_paths([validation_data, test_data], cluster)
        if paths is not None:
            sources = weights, test_weights
            comparison = _compare_files(paths, pairs, selection, sources, **shared)
        else:
            comparison = compare_at_scale(
                arguments.select_in(validation_data, selection),
                arguments.select_in(test_data, selection),
                pairs,
                sample_weight=weights,
                test_weight=test_weights,
                cluster=arguments.cluster_name(cluster),
                **shared,
            )
    for error in comparison.left_out:
        warn(f"left out: {error}")
    warn(*comparison.warnings)
    if json_output:
        print_json(
            [
                {
                    "map": entry.calibrator.card.map,
                    "objective": entry.calibrator.card.objective,
                    "fit_seconds": entry.calibrator.card.fit.seconds,
                    "metrics": {
                        name: metric.value for name, metric in _chosen(entry.metrics, shown).items()
                    },
                    **_cross_validation(entry.held_out),
                }
                for entry in comparison.entries
            ]
        )
        return
    fit = comparison.recommended.card.fit
    warn(*fit.bounds_reached, *fit.warnings)
    fitted_on, measured_on = map(arguments.short_name, (validation_data, test_data))
    title = f"fitted on {fitted_on}, measured on {measured_on}"
    say(_table(comparison, shown, title))
    say(candidates_table(comparison.choice))
    say(*winner_sentences(comparison.choice))
    say(f"recommended: {comparison.choice.reason}")


def _compare_files(
    paths: Sequence[Path],
    pairs: list[tuple[str, str]],
    selection: DataSelection,
    weights: tuple[str | None, str | None],
    *,
    input: Any,
    **shared: Any,
) -> Comparison:
    """Compare maps on two files, each with its weights."""
    from recalib.fitting.comparison import compare as compare_rows

    rows: list[LabelledData] = []
    sample_weights: list[Any] = []
    for name, path, source in zip(("validation", "test"), paths, weights, strict=True):
        column = None if arguments.is_weight_file(source) else source
        chosen = replace(selection, weights=column)
        rows.append(read_labelled(name, path, input, chosen, rows[0] if rows else None))
        field = "weights" if name == "validation" else "test-weights"
        sample_weights.append(
            arguments.read_weights(source, field) if column is None else rows[-1].weights
        )
    return compare_rows(
        rows[0],
        rows[1],
        pairs,
        input=input,
        sample_weight=sample_weights[0],
        test_weight=sample_weights[1],
        **shared,
    )


def _chosen(metrics: Mapping[str, Estimate], names: tuple[str, ...] | None) -> dict[str, Estimate]:
    return {name: item for name, item in metrics.items() if names is None or name in names}


def _table(comparison: Comparison, shown: tuple[str, ...] | None, title: str) -> Table:
    """Return a line for each map and objective; for all metrics a column."""
    rows = [
        ((entry.calibrator.card.map, entry.calibrator.card.objective), entry.metrics)
        for entry in comparison.entries
    ]
    if shown is None:
        return metrics_table({" by ".join(keys): metrics for keys, metrics in rows}, title)
    return comparison_table(("map", "objective"), rows, title, shown)


def _cross_validation(candidate: CandidateResult) -> dict[str, Any]:
    """Return the cross-validation result of a candidate as JSON values."""
    scores = {
        "nll": candidate.nll,
        "brier": candidate.brier,
        "nll_difference": candidate.nll_difference,
    }
    return {
        "chosen": candidate.chosen,
        "verdict": candidate.verdict,
        "cross_validated": None if candidate.nll is None else msgspec.to_builtins(scores),
    }
