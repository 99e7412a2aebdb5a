"""`recalib evaluate`: measure accuracy and calibration on a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import (
    metrics_table,
    print_json,
    progress,
    say,
    segments_table,
    warn,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from recalib.calibrator import Calibrator
    from recalib.files import DataSelection
    from recalib.files import LabelledData as RowData
    from recalib.sets import SetCoverage

Picture = Literal["reliability", "smooth", "classwise", "confidence", "risk"]


def evaluate(
    data: options.LabelledData,
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
    task: options.Task = "multiclass",
    weights: options.Weights = None,
    weight_kind: options.WeightKind = "survey",
    input: options.CalibratorInput = None,
    scores: options.Scores = None,
    label: options.Label = None,
    class_names: options.ClassNames = None,
    separator: options.Separator = None,
    segments: options.Segments = None,
    metrics: options.MetricNames = None,
    all_metrics: options.AllMetrics = False,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Measure accuracy, proper scores and calibration errors.

    With a calibrator that has prediction sets, also how often they hold the label, without weights
    and of one file; `sets` in JSON. `--segments` adds each segment of one file. Several files are
    measured in bounded memory; metrics that need sorted rows are then computed from a fine
    histogram.
    """
    from recalib.api import load
    from recalib.metrics import METRICS
    from recalib.metrics.multilabel import LABEL_METRICS

    fitted = None if calibrator is None else load(calibrator)
    summary = None if fitted is None else fitted.card.segments
    if fitted is not None and fitted.is_multilabel != (task == "multilabel"):
        raise InputError("task", found=task, accepted=f"{fitted.card.task}, as the calibrator's")
    needs_rows = task if task == "multilabel" else None
    path = arguments.only_file(
        data, cluster, diagram=diagram, picture=picture, task=needs_rows, segments=segments
    )
    if segments is not None and needs_rows is not None:
        raise InputError("segments", found=segments, accepted="none for task multilabel")
    if summary is not None and segments is None:
        accepted = f"{','.join(summary.columns)}, of one file"
        raise InputError("segments", found="none, of a calibrator with them", accepted=accepted)
    request = _Request(
        fitted,
        input,
        arguments.selection_of(
            scores, label, None if path is None else weights, separator, class_names
        ),
        weights,
        weight_kind,
        bins,
        intervals,
        arguments.metric_names(
            metrics, all_metrics, json_output, METRICS if needs_rows is None else LABEL_METRICS
        ),
        json_output,
        arguments.split_names(segments) or (),
    )
    if path is None:
        _evaluate_files(data, request, cluster)
        return
    _check_picture(path, diagram, picture, task, request)
    if task == "multilabel":
        _evaluate_labels(path, request, diagram)
    else:
        _evaluate_rows(path, request, diagram, picture or "reliability")


@dataclass(frozen=True)
class _Request:
    """The options of a command."""

    fitted: Calibrator | None
    input: Literal["logits", "probabilities"] | None
    selection: DataSelection
    weights: str | None
    weight_kind: options.WeightKind
    bins: int
    intervals: bool
    #: None: all; (): a few.
    metrics: tuple[str, ...] | None
    json_output: bool
    #: Columns of segments.
    segments: tuple[str, ...] = ()

    @property
    def level(self) -> float | None:
        """The level of intervals, which tables always have."""
        return 0.95 if self.intervals or not self.json_output else None

    @property
    def kind(self) -> Literal["logits", "probabilities"]:
        """What the file holds."""
        return self.input or ("logits" if self.fitted is None else self.fitted.card.input)

    def columns(self, path: Path) -> dict[str, Any] | None:
        """Return the columns of segments of a file, None without any."""
        from recalib.files.read_columns import read_columns

        separator = self.selection.separator
        return read_columns(path, self.segments, separator) if self.segments else None

    def read(self, path: Path, task: options.Task = "multiclass") -> tuple[RowData, dict[str, Any]]:
        """Return the rows of a file, and the scores to measure by their kind."""
        from recalib.core.arrays import check_undeclared, undeclared_text

        names = None if self.fitted is None else self.fitted.card.labels
        rows = arguments.read_file(path, self.selection, names, input=self.kind, task=task)
        if self.fitted is not None:
            columns = None if self.fitted.card.segments is None else self.columns(path)
            p = self.fitted.predict(rows.logits, columns, input=self.input)
            return rows, {"probabilities": p}
        is_guess = self.input is None and task == "multiclass"
        if is_guess and (undeclared := check_undeclared(rows.logits)):
            warn(undeclared_text(undeclared))
        return rows, {self.kind: rows.logits}

    def sample_weight(self, rows: RowData) -> Any:
        """Return the weights of rows, None without any."""
        return arguments.read_weights(self.weights) if rows.weights is None else rows.weights

    def names(self, classes: int) -> tuple[str, ...] | None:
        """Return the metrics to measure; None for all."""
        from recalib.metrics.headline import short_metrics

        return short_metrics(classes) if self.metrics == () else self.metrics


def _evaluate_rows(path: Path, request: _Request, diagram: Path | None, picture: Picture) -> None:
    """Print the metrics of a file, and draw a picture of it."""
    from recalib.core.arrays import check_weights
    from recalib.metrics.evaluate import evaluate as compute_metrics
    from recalib.stats.column_order import column_order_doubt

    with progress("evaluate", quiet=request.json_output):
        rows, values = request.read(path)
        weights = request.sample_weight(rows)
        check_weights(weights, rows=len(rows.logits), kind=request.weight_kind)
        estimates = compute_metrics(
            rows.labels,
            **values,
            sample_weight=weights,
            weight_kind=request.weight_kind,
            metrics=request.names(rows.logits.shape[1]),
            bins=request.bins,
            level=request.level,
            segments=request.columns(path),
        )
        kind = request.kind if request.fitted is None else "probabilities"
        if doubt := column_order_doubt(values[kind], rows.labels, kind):
            warn(doubt)
        if diagram is not None:
            _draw(diagram, values, rows.labels, request.bins, picture)
        coverage = None
        fitted = request.fitted
        if fitted is not None and fitted.card.sets is not None and weights is None:
            coverage = fitted.evaluate_sets(rows.logits, rows.labels, input=request.input)
    _print(estimates, f"{path.name}: {len(rows.logits)} rows", request, diagram, coverage)


def _evaluate_files(data: list[str], request: _Request, cluster: str | None) -> None:
    """Print the metrics of several files."""
    from recalib.scale import evaluate as evaluate_files

    with progress("evaluate", quiet=request.json_output) as update:
        evaluation = evaluate_files(
            arguments.select_in(data, request.selection),
            calibrator=request.fitted,
            input=request.input,
            bins=request.bins,
            sample_weight=request.weights,
            weight_kind=request.weight_kind,
            cluster=arguments.cluster_name(cluster),
            progress=lambda done, total: update(f"{done} of {total} parts"),
        )
        estimates = evaluation.finish(request.level)
    names = request.names(evaluation.classes)
    for name in request.metrics or ():
        if name not in estimates:
            raise InputError(
                "metrics", found=name, accepted=f"of several files {', '.join(estimates)}"
            )
    chosen = {n: item for n, item in estimates.items() if names is None or n in names}
    _print(chosen, f"{', '.join(data)}: {evaluation.rows} rows", request, None)


def _print(
    estimates: Mapping[str, Any],
    title: str,
    request: _Request,
    diagram: Path | None,
    coverage: SetCoverage | None = None,
) -> None:
    segments = getattr(estimates, "segments", {})
    if request.json_output:
        answer = _all_to_json(estimates, request.intervals)
        if segments:
            answer["segments"] = {
                name: {"rows": part.rows, **_all_to_json(part, request.intervals)}
                for name, part in segments.items()
            }
        print_json(answer if coverage is None else {**answer, "sets": asdict(coverage)})
        return
    say(metrics_table({"value": estimates}, title))
    if segments:
        say(segments_table(segments))
    if coverage is not None:
        say(coverage.text)
    if diagram is not None:
        say(f"saved {diagram}")


def _evaluate_labels(path: Path, request: _Request, diagram: Path | None) -> None:
    """Print the metrics of multilabel data: means over labels, and in JSON also of each label.

    Also draw the labels with the largest error to the file `diagram`.
    """
    from recalib.api import classwise_diagram
    from recalib.api import evaluate as evaluate_arrays

    with progress("evaluate", quiet=request.json_output):
        rows, values = request.read(path, "multilabel")
        known = None if request.fitted is None else request.fitted.card.labels
        names = arguments.class_names_of(request.selection) or known
        result = evaluate_arrays(
            rows.labels,
            **values,
            task="multilabel",
            sample_weight=request.sample_weight(rows),
            weight_kind=request.weight_kind,
            metrics=request.metrics or None,
            bins=request.bins,
            class_labels=names,
            intervals=True,
        )
        if diagram is not None:
            classwise_diagram(
                rows.labels, **values, class_labels=names, bins=request.bins, task="multilabel"
            ).save(diagram)
    heading = f"{path.name}: {len(rows.logits)} rows, means over {len(result.labels)} labels"
    if not request.json_output:
        _print(result, heading, request, diagram)
        return
    print_json(
        {
            "average": {name: item.value for name, item in result.items()},
            "labels": {
                label: _all_to_json(estimates, request.intervals)
                for label, estimates in result.labels.items()
            },
        }
    )


def _check_picture(
    path: Path, diagram: Path | None, picture: Picture | None, task: options.Task, request: _Request
) -> None:
    """Raise `InputError` for options that do not go together."""
    if diagram is not None and request.weights is not None:
        raise InputError("weights", found="--diagram too", accepted="one of the two")
    if picture is not None and diagram is None:
        raise InputError("picture", found=picture, accepted="only together with --diagram FILE")
    if task == "multilabel" and picture not in (None, "classwise"):
        raise InputError("picture", found=picture, accepted="classwise for task multilabel")
    if diagram is not None:
        from recalib.reporting.plots import check_bins, check_suffix

        check_suffix(diagram)
        arguments.check_output_path("diagram", diagram, path)
        if picture != "risk":  # the risk-coverage curve has no bins
            check_bins(request.bins)


def _all_to_json(estimates: Mapping[str, Any], intervals: bool) -> dict[str, Any]:
    return {name: _to_json(item, intervals) for name, item in estimates.items()}


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
