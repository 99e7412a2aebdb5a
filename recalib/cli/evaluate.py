"""`recalib evaluate`: measure accuracy and calibration on a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli.arguments import (
    CalibratorInput,
    Cluster,
    Columns,
    JsonOutput,
    LabelledData,
    Task,
    WeightKind,
    Weights,
    check_output_path,
    cluster_name,
    only_file,
    read_file,
    read_weights,
    split_names,
)
from recalib.errors import InputError
from recalib.reporting.terminal import metrics_table, print_json, progress, say, warn

if TYPE_CHECKING:
    from altair.typing import ChartType

    from recalib.calibrator import Calibrator

Picture = Literal["reliability", "smooth", "classwise", "confidence", "risk"]


def evaluate(
    data: LabelledData,
    calibrator: Annotated[
        Path | None, typer.Option(help="Calibrate with this parameter file first.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=10_000, help="Bins of binned metrics.")] = 15,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95% intervals and noise floors to JSON.")
    ] = False,
    diagram: Annotated[
        Path | None, typer.Option(help="Also draw a picture: .png, .svg, .html, .json.")
    ] = None,
    picture: Annotated[
        Picture | None,
        typer.Option(
            help="What --diagram draws; reliability by default, classwise for multilabel data."
        ),
    ] = None,
    task: Task = "multiclass",
    weights: Weights = None,
    weight_kind: WeightKind = "survey",
    input: CalibratorInput = None,
    columns: Columns = None,
    cluster: Cluster = None,
    json_output: JsonOutput = False,
) -> None:
    """Measure accuracy, proper scores and calibration errors.

    Several files are measured in bounded memory; metrics that need sorted rows are then computed
    from a fine histogram.
    """
    from recalib.api import load
    from recalib.core.arrays import RESEMBLANCE_HINT, check_weights, probability_resemblance
    from recalib.metrics.evaluate import evaluate as compute_metrics

    fitted = load(calibrator) if calibrator is not None else None
    if fitted is not None and fitted.is_multilabel != (task == "multilabel"):
        raise InputError("task", found=task, accepted=f"{fitted.card.task}, as the calibrator's")
    needs_rows = task if task == "multilabel" else None
    path = only_file(
        data, cluster, diagram=diagram, picture=picture, task=needs_rows, columns=columns
    )
    if path is None:
        _evaluate_files(
            data, fitted, weights, weight_kind, bins, intervals, input, cluster, json_output
        )
        return
    if diagram is not None and weights is not None:
        raise InputError("weights", found="--diagram too", accepted="one of the two")
    if picture is not None and diagram is None:
        raise InputError("picture", found=picture, accepted="only together with --diagram FILE")
    if task == "multilabel" and picture not in (None, "classwise"):
        raise InputError("picture", found=picture, accepted="classwise for task multilabel")
    if diagram is not None:
        from recalib.reporting.plots import check_bins, check_suffix

        check_suffix(diagram)
        check_output_path("diagram", diagram, path)
        if picture != "risk":  # the risk-coverage curve has no bins
            check_bins(bins)
    if task == "multilabel":
        _evaluate_labels(
            path,
            fitted,
            weights,
            weight_kind,
            bins,
            intervals,
            diagram,
            input,
            columns,
            json_output,
        )
        return
    with progress("evaluate", quiet=json_output):
        kind = input or (fitted.card.input if fitted is not None else "logits")
        names = None if fitted is None else fitted.card.labels
        rows = read_file(path, columns, names, input=kind)
        values: dict[str, Any] = {kind: rows.logits}
        if fitted is not None:
            values = {"probabilities": fitted.predict(rows.logits, input=input)}
        elif input is None and (resemblance := probability_resemblance(rows.logits)):
            warn(f"logits: {resemblance}; {RESEMBLANCE_HINT}")
        level = 0.95 if intervals or not json_output else None
        sample_weight = read_weights(weights)
        check_weights(sample_weight, rows=len(rows.logits), kind=weight_kind)
        estimates = compute_metrics(
            rows.labels,
            **values,
            sample_weight=sample_weight,
            weight_kind=weight_kind,
            bins=bins,
            level=level,
        )
        if diagram is not None:
            _draw(diagram, values, rows.labels, bins, picture or "reliability")
    if json_output:
        print_json({name: _to_json(item, intervals) for name, item in estimates.items()})
        return
    say(metrics_table({"value": estimates}, f"{path.name}: {len(rows.logits)} rows"))
    if diagram is not None:
        say(f"saved {diagram}")


def _evaluate_files(
    data: list[str],
    fitted: Calibrator | None,
    weights: str | None,
    weight_kind: WeightKind,
    bins: int,
    intervals: bool,
    input: Literal["logits", "probabilities"] | None,
    cluster: str | None,
    json_output: bool,
) -> None:
    """Print the metrics of several files."""
    from recalib.scale import evaluate as evaluate_files

    with progress("evaluate", quiet=json_output) as update:
        evaluation = evaluate_files(
            data,
            calibrator=fitted,
            input=input,
            bins=bins,
            sample_weight=weights,
            weight_kind=weight_kind,
            cluster=cluster_name(cluster),
            progress=lambda done, total: update(f"{done} of {total} parts"),
        )
        estimates = evaluation.finish(0.95 if intervals or not json_output else None)
    if json_output:
        print_json({name: _to_json(item, intervals) for name, item in estimates.items()})
        return
    say(metrics_table({"value": estimates}, f"{', '.join(data)}: {evaluation.rows} rows"))


def _evaluate_labels(
    data: Path,
    fitted: Calibrator | None,
    weights: str | None,
    weight_kind: WeightKind,
    bins: int,
    intervals: bool,
    diagram: Path | None,
    input: Literal["logits", "probabilities"] | None,
    columns: str | None,
    json_output: bool,
) -> None:
    """Print the metrics of multilabel data: means over labels, and in JSON also of each label.

    Also draw the labels with the largest error to the file `diagram`.
    """
    from recalib.api import classwise_diagram
    from recalib.api import evaluate as evaluate_arrays

    with progress("evaluate", quiet=json_output):
        kind = input or (fitted.card.input if fitted is not None else "logits")
        names = None if fitted is None else fitted.card.labels
        rows = read_file(data, columns, names, input=kind, task="multilabel")
        if columns is not None:
            names = split_names(columns)
        values: dict[str, Any] = {kind: rows.logits}
        if fitted is not None:
            values = {"probabilities": fitted.predict(rows.logits, input=input)}
        result = evaluate_arrays(
            rows.labels,
            **values,
            task="multilabel",
            sample_weight=read_weights(weights),
            weight_kind=weight_kind,
            bins=bins,
            class_labels=names,
            intervals=True,
        )
        if diagram is not None:
            classwise_diagram(
                rows.labels, **values, class_labels=names, bins=bins, task="multilabel"
            ).save(diagram)
    if json_output:
        print_json(
            {
                "average": {name: item.value for name, item in result.items()},
                "labels": {
                    label: {name: _to_json(item, intervals) for name, item in estimates.items()}
                    for label, estimates in result.labels.items()
                },
            }
        )
        return
    heading = f"{data.name}: {len(rows.logits)} rows, means over {len(result.labels)} labels"
    say(metrics_table({"value": result}, heading))
    if diagram is not None:
        say(f"saved {diagram}")


def _to_json(estimate: Any, intervals: bool) -> Any:
    if not intervals:
        return estimate.value
    return {name: getattr(estimate, name) for name in ("value", "low", "high", "floor")}


def _draw(path: Path, values: dict[str, Any], labels: Any, bins: int, picture: Picture) -> None:
    from recalib.metrics import Predictions
    from recalib.reporting import plots

    ((kind, array),) = values.items()
    create = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
    predictions = create(array, labels)
    series = {path.stem: predictions}
    charts: dict[Picture, Callable[[], ChartType]] = {
        "reliability": lambda: plots.reliability_diagram(series, bins=bins),
        "smooth": lambda: plots.reliability_diagram(series, bins=bins, smooth=True),
        "classwise": lambda: plots.classwise_diagram(predictions, bins=bins),
        "confidence": lambda: plots.confidence_histogram(series, bins=bins),
        "risk": lambda: plots.risk_coverage(series),
    }
    plots.save(charts[picture](), path)
