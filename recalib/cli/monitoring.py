"""`recalib monitoring`: show the monitoring state of a model's champion on a server."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import options
from recalib.core.time_text import time_text
from recalib.reporting.terminal import narrow_table, print_json, say, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from recalib.client import Candidate, Monitoring, MonitoringEntry
    from recalib.contract.alerts import Alert, VersionComparison

#: Lines of a table; the newest ones are shown.
_MAX_LINES = 12
#: Characters of an actor's name. A job's full name would leave no room for the reason.
_MAX_ACTOR_LENGTH = 14
#: The mark of what comes from a log of the past; tables are narrow.
_REPLAYED = "*"


def monitoring(
    model: options.ModelName,
    server: options.ServerUrl,
    history: Annotated[
        int | None,
        typer.Option(min=1, help="Show the states after this many cohorts instead, newest first."),
    ] = None,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Show the monitoring state of a model's champion.

    The output has the state, the evidence, the windows and the events.
    """
    from recalib.client import Client

    with Client(server, api_key=key) as client:
        if history is not None:
            entries = list(islice(client.list_monitoring_history(model), history))
            if json_output:
                print_json([entry.model_dump(mode="json") for entry in entries])
            else:
                say(_history(entries))
                if any(entry.replayed for entry in entries):
                    say(f"{_REPLAYED} replayed from a log")
            return
        status = client.get_monitoring(model)
    if json_output:
        print_json(status.model_dump(mode="json"))
        return
    version = "no champion" if status.version is None else f"version {status.version}"
    since = "" if status.since is None else f" since {_format_time(status.since)}"
    say(f"{status.model}, {version}: {status.state}{since}")
    say(f"{status.reason}")
    if status.alert is not None:
        say(*alert_lines(status.alert))
    warn(*status.warnings)
    if status.assessed_at is not None:
        say(f"last assessed {_format_time(status.assessed_at)}; {_evidence(status)}")
        say(_window(status.evidence))
        say(expected_text(status.evidence))
    if status.replayed_through is not None:
        through = _format_time(status.replayed_through)
        say(f"predictions before {through} are replayed from a log ({_REPLAYED})")
    if status.onset is not None and status.state in ("suspect", "stale"):
        say(f"evidence has grown since the prediction of {_format_time(status.onset)}")
    if status.segments:
        say(_segments(status))
    if status.classes is not None:
        say(_classes(status.classes))
    if status.windows:
        say(_windows(status))
    if status.candidate is not None:
        say(_candidate(status.candidate))
    if status.events:
        say(_events(status))


def alert_lines(alert: Alert) -> Iterator[str]:
    """Yield the alert in lines: the drift, earlier versions, the next command and links."""
    yield alert.summary
    yield from map(comparison_text, alert.versions)
    yield f"next: {alert.command}"
    yield from (link for link in (alert.runbook, alert.dashboard) if link)


def comparison_text(other: VersionComparison) -> str:
    """Return how an earlier version does on the champion's recent labels."""
    word = "better" if other.low > 0 else "worse" if other.high < 0 else "not clearly different"
    return (
        f"version {other.version} is {word} on {other.labels:,} recent labels: Brier score lower by"
        f" {other.difference:.4f} [{other.low:.4f}, {other.high:.4f}]"
    )


def _evidence(status: Monitoring) -> str:
    """Return the test, the shift and the counts of labels in one line."""
    evidence = status.evidence
    test = f"log E {_number(evidence, 'log_evidence')} of {_number(evidence, 'threshold')}"
    shift = f"PSI {_number(evidence, 'psi')}, threshold {_number(evidence, 'psi_threshold')}"
    labels = f"{evidence.get('n') or 0:,} labels of {evidence.get('traffic') or 0:,} predictions"
    late = f"{status.late_labels:,} labels came too late"
    return f"{test}; {shift}; {labels} in the window; {late}; {status.captured_rows:,} logits kept"


def _window(evidence: dict[str, Any]) -> str:
    """Return the metrics of the latest window in one line."""
    from recalib.drift.target import TARGET_NAMES

    if evidence.get("ece") is None:
        return "no window: too few labels"
    # Servers of earlier versions have no target.
    error = TARGET_NAMES[evidence.get("target") or "top_label"].error

    def percent(name: str) -> str:
        return _percent(evidence, name)

    ece = (
        f"{error} {percent('ece')} [{percent('ece_low')}, {percent('ece_high')}], "
        f"floor {percent('ece_floor')}"
    )
    unbiased = f"unbiased CE {percent('ce')} [{percent('ce_low')}, {percent('ce_high')}]"
    if evidence.get("selection_low") is not None:
        ece += (
            f"; {error} [{percent('selection_low')}, {percent('selection_high')}] for selection of "
            f"labels up to a ratio of {evidence['selection_ratio']:g}"
        )
    frequency, probability = "accuracy", "confidence"
    if evidence.get("target") == "positive_class":
        frequency, probability = "frequency of class 1", "mean P(y = 1)"
    means = f"{frequency} {percent('accuracy')}, {probability} {percent('confidence')}"
    labels = f"coverage {percent('coverage')}, silent traffic {percent('silent')}"
    if (since := evidence.get("silent_since")) is not None:
        labels += f", no labels since {time_text(since)}"
    if (since := evidence.get("rare_since")) is not None:
        labels += f", labels are rare since {time_text(since)}"
    return f"window: {ece}; {unbiased}; {means}; {labels}"


def expected_text(evidence: dict[str, Any]) -> str:
    """Return what the predictions of the latest window achieve if they are still calibrated."""
    expected = evidence.get("expected")
    if expected is None:
        return "no expected accuracy: it is of predictions that are still calibrated"
    names = {"accuracy": "accuracy", "f1": "F1", "auc": "AUC"}
    values = ", ".join(
        f"{names[name]} {_percent(expected[name], 'value')}"
        f" [{_percent(expected[name], 'low')}, {_percent(expected[name], 'high')}]"
        for name in names
        if expected[name] is not None
    )
    known = expected.get("calibration_rows") is not None
    limit = "" if known else "; the error of the calibrator itself is not in the intervals"
    return f"if still calibrated: {values} of {expected['predictions']:,} predictions{limit}"


def _segments(status: Monitoring) -> Table:
    table = narrow_table("segments", "segment", "state", "why")
    for segment in status.segments:
        table.add_row(segment.segment, segment.state, segment.reason)
    return table


def _classes(evidence: dict[str, Any]) -> Table:
    test = f"log E {_number(evidence, 'log_evidence')} of {_number(evidence, 'threshold')}"
    columns = ("class", "log E", "probability", "frequency", "labels")
    table = narrow_table(f"{evidence['watched']:,} classes, {test}; those with the most", *columns)
    for gap in evidence["worst"]:
        means = _percent(gap, "probability"), _percent(gap, "frequency")
        labels = f"{gap['range_labels']:,.0f}"
        table.add_row(str(gap["class_index"]), _number(gap, "log_evidence"), *means, labels)
    return table


def _history(entries: list[MonitoringEntry]) -> Table:
    columns = ("predictions of", "version", "state", "log E", "labels", "ECE, 95% interval", "why")
    table = narrow_table("states after each cohort, newest first", *columns)
    for entry in entries:
        table.add_row(
            f"{entry.start:%Y-%m-%d %H:%M}",
            str(entry.version),
            _mark(entry.state, replayed=entry.replayed),
            _number(entry.evidence, "log_evidence"),
            f"{entry.measured.get('labelled') or 0:,}",
            _ece(entry.measured),
            entry.reason,
        )
    return table


def _mark(text: str, *, replayed: bool) -> str:
    return f"{text}{_REPLAYED}" if replayed else text


def _ece(measured: dict[str, Any]) -> str:
    ece, low, high = (_percent(measured, name) for name in ("ece", "ece_low", "ece_high"))
    return "-" if measured.get("ece") is None else f"{ece} [{low}, {high}]"


def _windows(status: Monitoring) -> Table:
    columns = ("predictions of", "labels", "of", "ECE, 95% interval", "floor", "delay")
    table = narrow_table("matured cohorts, newest first", *columns)
    for window in status.windows[:_MAX_LINES]:
        measured = window.measured
        delay = measured.get("delay")
        table.add_row(
            _mark(f"{window.start:%Y-%m-%d %H:%M}", replayed=window.replayed),
            f"{measured.get('labelled') or 0:,}",
            f"{measured.get('traffic') or 0:,}",
            _ece(measured),
            _percent(measured, "ece_floor"),
            "-" if delay is None else f"{delay:,.0f} s",
        )
    return table


def _candidate(candidate: Candidate) -> str:
    evidence = candidate.evidence
    verdict = candidate.verdict or "is being compared"
    gain = _number(evidence, "mean_difference", 4)
    return (
        f"candidate {candidate.version}: {verdict}; Brier score lower by {gain} on"
        f" {evidence.get('labels') or 0:,} labels (log E {_number(evidence, 'log_evidence')} of"
        f" {_number(evidence, 'threshold')})"
    )


def _events(status: Monitoring) -> Table:
    table = narrow_table("events, newest first", "when", "version", "what", "who", "why")
    for event in status.events[:_MAX_LINES]:
        actor = event.actor
        if len(actor) > _MAX_ACTOR_LENGTH:
            actor = f"{actor[: _MAX_ACTOR_LENGTH - 1]}…"
        at = f"{event.at:%Y-%m-%d %H:%M}"
        kind = _mark(event.kind, replayed=event.replayed)
        table.add_row(at, str(event.version), kind, actor, event.reason)
    return table


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _number(evidence: dict[str, Any], name: str, digits: int = 2) -> str:
    value = evidence.get(name)
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(measured: dict[str, Any], name: str) -> str:
    value = measured.get(name)
    return "-" if value is None else f"{value:.1%}"
