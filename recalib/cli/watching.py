"""Commands that ask a server how a model's calibrator holds up, and give a candidate up."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import Json
from recalib.terminal import narrow_table, print_json, say

if TYPE_CHECKING:
    from rich.table import Table

    from recalib.client import Candidate, Monitoring

__all__ = ["drop_candidate", "monitoring"]

#: Lines of a table: the latest, which is what somebody looks for.
_MOST_LINES = 12
#: Characters of who has done something.
_WHO = 14

_Model = Annotated[str, typer.Argument(help="The model's name.", show_default=False)]
_Server = Annotated[
    str, typer.Option(help="Its address: http://127.0.0.1:8000.", show_default=False)
]


def monitoring(model: _Model, server: _Server, json_output: Json = False) -> None:
    """Ask a server how a model's champion holds up: state, evidence, windows, what has happened."""
    import msgspec

    from recalib.client import Client

    with Client(server) as client:
        found = client.get_monitoring(model)
    if json_output:
        print_json(msgspec.to_builtins(found))
        return
    version = "no champion" if found.version is None else f"version {found.version}"
    since = "" if found.since is None else f" since {_when(found.since)}"
    say(f"{found.model}, {version}: {found.state}{since}")
    say(f"{found.reason}")
    if found.assessed_at is not None:
        say(f"last looked at {_when(found.assessed_at)}; {_besides(found)}")
        say(_window(found.evidence))
    if found.onset is not None and found.state in ("suspect", "stale"):
        say(f"evidence has grown since the prediction of {_when(found.onset)}")
    if found.segments:
        say(_segments(found))
    if found.windows:
        say(_windows(found))
    if found.candidate is not None:
        say(_told(found.candidate))
    if found.events:
        say(_events(found))


def drop_candidate(
    model: _Model,
    version: Annotated[int, typer.Argument(help="The candidate.", show_default=False)],
    server: _Server,
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "",
    json_output: Json = False,
) -> None:
    """Give a candidate up that a server compares, or that waits to be promoted."""
    import msgspec

    from recalib.client import Client

    with Client(server) as client:
        found = client.drop_candidate(model, version, reason=reason)
    if json_output:
        print_json(msgspec.to_builtins(found))
    else:
        say(f"candidate {found.version} of {model} is {found.verdict}; the champion goes on")


def _besides(found: Monitoring) -> str:
    """Return what is known besides the state, in one line."""
    evidence = found.evidence
    test = f"log E {_number(evidence, 'log_evidence')} of {_number(evidence, 'threshold')}"
    shift = f"PSI {_number(evidence, 'psi')}, threshold {_number(evidence, 'psi_threshold')}"
    labels = f"{evidence.get('n') or 0:,} labels of {evidence.get('traffic') or 0:,} predictions"
    late = f"{found.late_labels:,} labels came too late"
    return f"{test}; {shift}; {labels} in the window; {late}; {found.captured_rows:,} logits kept"


def _window(evidence: dict[str, Any]) -> str:
    """Return what the labels of the latest window say, in one line."""
    if evidence.get("ece") is None:
        return "no window: too few labels"

    def share(name: str) -> str:
        return _percent(evidence, name)

    ece = (
        f"ECE {share('ece')} [{share('ece_low')}, {share('ece_high')}], floor {share('ece_floor')}"
    )
    unbiased = f"unbiased CE {share('ce')} [{share('ce_low')}, {share('ce_high')}]"
    means = f"accuracy {share('accuracy')}, confidence {share('confidence')}"
    return f"window: {ece}; {unbiased}; {means}; coverage {share('coverage')}"


def _segments(found: Monitoring) -> Table:
    table = narrow_table("segments", "segment", "state", "why")
    for one in found.segments:
        table.add_row(one.segment, one.state, one.reason)
    return table


def _windows(found: Monitoring) -> Table:
    names = ("predictions of", "labels", "of", "ECE, 95% interval", "floor", "delay")
    table = narrow_table("matured cohorts, newest first", *names)
    for one in found.windows[:_MOST_LINES]:
        measured = one.measured
        ece, low, high = (_percent(measured, name) for name in ("ece", "ece_low", "ece_high"))
        delay = measured.get("delay")
        table.add_row(
            f"{one.start:%Y-%m-%d %H:%M}",
            f"{measured.get('labelled') or 0:,}",
            f"{measured.get('traffic') or 0:,}",
            "-" if measured.get("ece") is None else f"{ece} [{low}, {high}]",
            _percent(measured, "ece_floor"),
            "-" if delay is None else f"{delay:,.0f} s",
        )
    return table


def _told(one: Candidate) -> str:
    evidence = one.evidence
    verdict = one.verdict or "is being compared"
    gained = _number(evidence, "mean_difference", 4)
    return (
        f"candidate {one.version}: {verdict}; Brier score lower by {gained} on"
        f" {evidence.get('labels') or 0:,} labels (log E {_number(evidence, 'log_evidence')} of"
        f" {_number(evidence, 'threshold')})"
    )


def _events(found: Monitoring) -> Table:
    table = narrow_table("what has happened, newest first", "when", "version", "what", "who", "why")
    for one in found.events[:_MOST_LINES]:
        # A job's name alone would leave no room for the reason.
        who = one.actor if len(one.actor) <= _WHO else f"{one.actor[: _WHO - 1]}…"
        table.add_row(f"{one.at:%Y-%m-%d %H:%M}", str(one.version), one.kind, who, one.reason)
    return table


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _number(evidence: dict[str, Any], name: str, digits: int = 2) -> str:
    value = evidence.get(name)
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(measured: dict[str, Any], name: str) -> str:
    value = measured.get(name)
    return "-" if value is None else f"{value:.1%}"
