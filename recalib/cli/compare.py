"""`recalib compare`: fit several maps and measure them on a second file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from recalib.cli.arguments import (
    Cluster,
    Columns,
    InputKind,
    JsonOutput,
    MapNames,
    MoreTestData,
    MoreValidationData,
    ObjectiveNames,
    PredictionsPolicy,
    PreserveAccuracy,
    TestData,
    ValidationData,
    WeightKind,
    Weights,
    cluster_name,
    read_weights,
    short_name,
)
from recalib.cli.comparison import compatible_pairs, local_paths, read_validation_and_test
from recalib.reporting.terminal import (
    candidates_table,
    comparison_table,
    print_json,
    progress,
    say,
    warn,
)

if TYPE_CHECKING:
    from recalib.core.card import CandidateResult


def compare(
    validation: ValidationData,
    test: TestData,
    maps: MapNames = "",
    objectives: ObjectiveNames = "nll",
    predictions: PredictionsPolicy = None,
    preserve_accuracy: PreserveAccuracy = None,
    input: InputKind = "logits",
    add_validation: MoreValidationData = None,
    add_test: MoreTestData = None,
    columns: Columns = None,
    weights: Weights = None,
    test_weights: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="Weights of the test rows, as --weights."),
    ] = None,
    weight_kind: WeightKind = "survey",
    cluster: Cluster = None,
    json_output: JsonOutput = False,
) -> None:
    """Fit several maps on one file and measure them on another.

    One map is recommended by cross-validation on the first file, as `fit --map auto` chooses; the
    second file has no influence. Incompatible pairs of map and objective are left out, and so are
    maps that the data is too large for. Folders, globs and URLs are read in bounded memory, with
    the maps that `fit` takes there. `--weights` are those of the first file.
    """
    from recalib.fitting.auto import resolve_predictions
    from recalib.fitting.auto_choice import winner_sentences
    from recalib.fitting.comparison import compare as compare_rows
    from recalib.scale import compare as compare_files

    policy = resolve_predictions(predictions, preserve_accuracy)
    pairs = compatible_pairs(maps, objectives)
    validation_data, test_data = [validation, *(add_validation or [])], [test, *(add_test or [])]
    with progress("compare", quiet=json_output) as update:
        paths = local_paths([validation_data, test_data], cluster, columns)
        if paths is not None:
            comparison = compare_rows(
                *read_validation_and_test(paths, input, columns=columns),
                pairs,
                input=input,
                predictions=policy,
                sample_weight=read_weights(weights),
                test_weight=read_weights(test_weights, "test-weights"),
                weight_kind=weight_kind,
                progress=update,
            )
        else:
            comparison = compare_files(
                validation_data,
                test_data,
                pairs,
                input=input,
                predictions=policy,
                sample_weight=weights,
                test_weight=test_weights,
                weight_kind=weight_kind,
                cluster=cluster_name(cluster),
                progress=update,
            )
    for error in comparison.left_out:
        warn(f"left out: {error}")
    for message in comparison.warnings:
        warn(message)
    if json_output:
        print_json(
            [
                {
                    "map": entry.calibrator.card.map,
                    "objective": entry.calibrator.card.objective,
                    "fit_seconds": entry.calibrator.card.fit.seconds,
                    "metrics": {name: metric.value for name, metric in entry.metrics.items()},
                    **_cross_validation(entry.held_out),
                }
                for entry in comparison.entries
            ]
        )
        return
    rows = []
    for entry in comparison.entries:
        card = entry.calibrator.card
        rows.append(([card.map, card.objective], entry.metrics))
    fit = comparison.recommended.card.fit
    for message in (*fit.bounds_reached, *fit.warnings):
        warn(message)
    title = f"fitted on {short_name(validation_data)}, measured on {short_name(test_data)}"
    say(comparison_table(("map", "objective"), rows, title))
    say(candidates_table(comparison.choice))
    for sentence in winner_sentences(comparison.choice):
        say(sentence)
    say(f"recommended: {comparison.choice.reason}")


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
