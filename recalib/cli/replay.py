"""`recalib replay`: run the monitor on a log of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli import arguments, options
from recalib.cli.monitoring import expected_text
from recalib.cli.replay_into import check_options, describe_times, replay_into
from recalib.core.field_comments import field_comments
from recalib.core.monitoring_settings import EvidenceSettings
from recalib.core.time_text import time_text
from recalib.reporting.terminal import narrow_table, print_json, progress, say, warn

if TYPE_CHECKING:
    from rich.table import Table

    from recalib.drift import ClassEvidence
    from recalib.drift.target import Target, TargetNames
    from recalib.replay import ClassShares, Replay, SegmentGap, SegmentSearch

_DESCRIPTIONS = field_comments(EvidenceSettings)
#: Classes that are listed when the class shares have changed: those that changed most.
_MAX_CLASSES = 3
#: Segments that are listed, and characters of a value.
_MAX_SEGMENTS, _MAX_VALUE = 5, 40


def _option(name: str) -> Any:
    """Return the option of a setting, with its description as the help."""
    return typer.Option(help=_DESCRIPTIONS[name])


def replay(
    context: typer.Context,
    log: Annotated[
        list[str],
        typer.Argument(
            help="Predictions, .parquet, .csv, .tsv or .jsonl: time or timestamp; confidence,"
            " probabilities or probability_0, probability_1, ...; and correct or label; label_time,"
            " segment and group are optional. Times are numbers since 1970, timestamps, dates or"
            " ISO texts. Of two classes, probabilities may be P(y = 1), which is then monitored"
            " instead of the confidence. A file, a folder, a glob, a URL such as s3://bucket/folder,"
            " or several of these. Multilabel: time, probabilities, labels."
        ),
    ],
    task: options.Task = "multiclass",
    alpha: Annotated[float, _option("alpha")] = EvidenceSettings.alpha,
    tolerance: Annotated[float, _option("tolerance")] = EvidenceSettings.tolerance,
    maturity: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait for labels; by default the 99% quantile of their delays."
        ),
    ] = None,
    objective: Annotated[float, _option("objective")] = EvidenceSettings.objective,
    selection_ratio: Annotated[
        float, _option("selection_ratio")
    ] = EvidenceSettings.selection_ratio,
    window: Annotated[int, _option("window_labels")] = EvidenceSettings.window_labels,
    label_pause: Annotated[
        float, _option("label_pause_seconds")
    ] = EvidenceSettings.label_pause_seconds,
    cohort: Annotated[
        float | None,
        typer.Option(help="Seconds per cohort; by default at most 300 cohorts."),
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option(
            help="A parameter file; confidences, or P(y = 1), are compared with its calibration"
            " set instead of the first predictions of the log."
        ),
    ] = None,
    classes: Annotated[
        str,
        typer.Option(
            help="Classes to monitor: `all`, or names and indices separated by commas; needs the"
            " columns probabilities and label."
        ),
    ] = "",
    class_names: Annotated[
        str,
        typer.Option(
            help="Names of the classes, in order, separated by commas, which label and columns of"
            " probabilities may have; by default those of the calibrator."
        ),
    ] = "",
    find_segments: Annotated[
        str,
        typer.Option(
            help="Columns of the log, separated by commas, whose values are tried as segments."
        ),
    ] = "",
    adapt: Annotated[
        Literal["none", "label_shift"],
        typer.Option(
            help="`label_shift`: monitor answers that are adapted to the shares of classes, once"
            " labels confirm it; needs the columns probabilities and label.",
        ),
    ] = "none",
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the timeline: .png, .svg, .html, .json.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write an .html report: states, reliability before and after, segments."
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="Load the log into the monitoring of this model on a server; its monitoring"
            " settings apply."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="With --into: the server's URL; by default RECALIB_SERVER.",
            envvar="RECALIB_SERVER",
            show_envvar=False,
        ),
    ] = None,
    version: Annotated[
        str, typer.Option(help="With --into: a version, or an alias of a version.")
    ] = "champion",
    to_now: Annotated[
        bool,
        typer.Option(
            "--to-now", help="With --into: move all times forward, so that the log ends now."
        ),
    ] = False,
    key: options.ApiKey = None,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Run the monitor on a log of predictions.

    It reports when a calibrator would have been fresh, suspect or stale. Predictions are grouped
    into cohorts by prediction time. A cohort is read once it has matured; labels that came later
    are counted and not used. All times are prediction times. With --cluster, workers read and check
    the files, and the monitor runs here.
    """
    check_options(context)
    if into is not None and server is not None:
        replay_into(log, into, server, version, key=key, to_now=to_now, json_output=json_output)
        return
    from recalib.files.fragments import is_single_file
    from recalib.replay import ReplayOptions
    from recalib.replay import replay as replay_log

    settings = ReplayOptions(
        alpha=alpha,
        tolerance=tolerance,
        objective=objective,
        selection_ratio=selection_ratio,
        maturity=maturity,
        window_labels=window,
        label_pause_seconds=label_pause,
        least_labels=min(EvidenceSettings.least_labels, window),
        cohort=cohort,
        find_segments=arguments.split_names(find_segments) or (),
        classes=arguments.split_names(classes) or (),
        task=task,
        class_names=arguments.split_names(class_names) or (),
        adapt=adapt,
    )
    inputs = [*map(Path, log), *([] if calibrator is None else [calibrator])]
    if picture is not None:
        from recalib.reporting.plots import check_suffix

        check_suffix(picture, "picture")
        arguments.check_output_path("picture", picture, *inputs)
    if report is not None:
        arguments.check_output_path("report", report, *inputs, suffix=".html")
    name = arguments.short_name(log)
    card = None
    if calibrator is not None:
        from recalib.calibrator import Calibrator

        card = Calibrator.load(calibrator).card
    with progress("replay", quiet=json_output) as update:
        workers = cluster if is_single_file(log) else arguments.cluster_name(cluster)
        result = replay_log(log, settings, update, card, workers)
        if picture is not None:
            _draw(picture, result, name)
        if report is not None:
            from recalib.reporting.html_report import create_replay_report

            create_replay_report(result, title=name, warnings=_warnings(result)).save(report)
    if json_output:
        print_json(result.to_dict())
        return
    warn(*_warnings(result))
    say(_timeline(result, f"{name}: {result.rows:,} predictions, {result.labelled:,} labels"))
    say(f"times: {describe_times(result.times)}")
    say(_maturity(result))
    if result.classes is not None:
        say(_class_evidence(result.classes))
    if result.class_shares is not None:
        say(_class_shares(result.class_shares, None if card is None else card.labels))
    if result.adaptation is not None:
        say(result.adaptation.sentence())
    if result.segment_search is not None:
        _show_segments(result.segment_search, result.target)
    if result.windows:
        say(expected_text(result.windows[-1]))
    say(f"now {result.state}")
    if picture is not None:
        say(f"saved {picture}")
    if report is not None:
        say(f"saved {report}")


def _draw(path: Path, result: Replay, name: str) -> None:
    from recalib.api.monitoring import timeline

    timeline(result, title=name).save(path)


def _warnings(result: Replay) -> list[str]:
    messages = []
    if not result.events:
        messages.append("nothing has matured: the log is shorter than the delay of labels")
    last_window = result.windows[-1] if result.windows else {}
    if last_window.get("selective"):
        messages.append(
            "labels come more often for some confidences than for others; the test and the windows"
            " are biased if errors are labelled more often"
        )
    if last_window.get("may_be_selection"):
        hint = ""
        if last_window.get("selection_low") is None:
            hint = "; --selection-ratio gives the error for selection up to a ratio"
        messages.append(
            f"the evidence for the state {result.state} may come from the selection of labels{hint}"
        )
    return messages


def _timeline(result: Replay, heading: str) -> Table:
    table = narrow_table(heading, "prediction time", "state", "why")
    for event in result.events:
        table.add_row(time_text(event.time), event.status.state, event.status.reason)
    return table


def _maturity(result: Replay) -> str:
    from recalib.drift.target import TARGET_NAMES

    origin = "99% of labels came by then" if result.maturity_from == "delays" else "as given"
    reference = "the first" if result.reference_from == "log" else "the calibration set's"
    return (
        f"read {_format_duration(result.maturity)} after prediction ({origin}): {result.late:,}"
        f" labels came too late and {result.immature:,} predictions are too young, and are not"
        f" used; {TARGET_NAMES[result.target].values} are compared with {reference}"
        f" {result.reference:,} predictions"
    )


def _class_evidence(evidence: ClassEvidence) -> str:
    """Return the class-wise evidence, with the class that has the most."""
    text = (
        f"{evidence.watched:,} classes on up to {evidence.labels:,} labels each: log E"
        f" {evidence.log_evidence:.2f} of {evidence.threshold:.2f}"
    )
    if not evidence.worst:
        return text
    gap = evidence.worst[0]
    return (
        f"{text}, most of class {gap.class_index}, which occurs in {gap.frequency:.1%} of"
        f" {gap.range_labels:,} labels where its probability is {gap.probability:.1%} on average"
    )


def _class_shares(shares: ClassShares, names: tuple[str, ...] | None) -> str:
    """Return how the class shares changed if the drift is a label shift, and what labels say."""
    pairs = list(zip(shares.before, shares.now, strict=True))
    changed = sorted(range(len(pairs)), key=lambda k: -abs(pairs[k][1] - pairs[k][0]))
    changes = ", ".join(
        f"{k if names is None else names[k]} {pairs[k][0]:.1%} to {pairs[k][1]:.1%}"
        for k in changed[:_MAX_CLASSES]
    )
    text = (
        f"if only the class shares have changed: {changes}; {shares.moved:.1%} in total,"
        f" where chance alone gives {shares.moved_by_chance:.1%}"
    )
    if shares.brier is None or shares.brier_rescaled is None:
        return f"{text}; no labels can confirm it"
    return (
        f"{text}; rescaled to these shares, the squared error of confidences on"
        f" {shares.labels:,} labels is {shares.brier_rescaled:.4f} instead of {shares.brier:.4f}"
    )


def _show_segments(search: SegmentSearch, target: Target) -> None:
    """Print the worst segments and a sentence about the worst."""
    from recalib.drift.target import TARGET_NAMES

    columns, names = ", ".join(search.columns), TARGET_NAMES[target]
    if search.worst is None:
        say(f"no value of {columns} has enough labels to be tried as a segment")
        return
    heading = (
        f"{names.frequency} - {names.probability} of {search.tried:,} segments by {columns}, the"
        f" worst first (intervals of {1 - search.alpha:.0%} for all together)"
    )
    table = narrow_table(heading, "segment", "difference", "interval", "labels")
    for segment in search.segments[:_MAX_SEGMENTS]:
        interval = f"{segment.low:+.1%} to {segment.high:+.1%}"
        name = f"{segment.column} = {_shorten(segment.value)}"
        table.add_row(name, f"{segment.gap:+.1%}", interval, f"{segment.labels:,}")
    say(table)
    say(_describe_worst(search.worst, search, names))


def _describe_worst(worst: SegmentGap, search: SegmentSearch, names: TargetNames) -> str:
    if not worst.exceeds_tolerance:
        return f"no segment is shown to differ by more than {search.tolerance:.1%}"
    return (
        f"worst segment: {worst.column} = {_shorten(worst.value)}, {names.frequency}"
        f" is {worst.accuracy:.1%} where the mean of {names.values} is {worst.confidence:.1%}, on"
        f" {worst.labels:,} of {search.labels:,} labels; {search.exceeding:,} of {search.tried:,}"
        f" segments differ by more than {search.tolerance:.1%}"
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _format_duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} seconds"
