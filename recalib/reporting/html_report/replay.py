"""The report of a replay: states over time, reliability before and after, and segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from recalib.core.time_text import time_text
from recalib.drift.target import TARGET_NAMES
from recalib.errors import InputError
from recalib.reporting.html_report.pictures import draw_picture
from recalib.reporting.html_report.rendering import Page, render
from recalib.reporting.plots.style import REFERENCE, SIDE, apply_style, colours, inline, percent
from recalib.reporting.plots.timeline import timeline

if TYPE_CHECKING:
    from recalib.replay import Replay
    from recalib.shift import AdaptationSummary

#: Segments in the table: the worst.
_MAX_SEGMENTS = 20
#: States of an adaptation in the table, the last ones, and the shares of the first classes.
_MAX_STATES, _MAX_SHARES = 20, 10


@dataclass(frozen=True, repr=False)
class ReplayReport(Page):
    """A page about a replay; a notebook shows it."""

    html: str


def create_replay_report(
    result: Replay, *, title: str, warnings: Sequence[str] = ()
) -> ReplayReport:
    """Return the report of a replay.

    Raises
    ------
    InputError: no cohort has matured.
    """
    if not result.events:
        raise InputError("log", found="no matured cohort", accepted="at least one")
    names, search = TARGET_NAMES[result.target], result.segment_search
    last = result.events[-1].status
    chart = timeline(result.windows, objective=result.objective, heading=title)
    states = draw_picture("States over time", "By prediction time.", "wide", [], chart)
    caption = "Bins of matured labels, with exact intervals of 95%. Dashed: calibrated."
    legend = [("before", "before the onset"), ("after", "after the onset")]
    if len({row["period"] for row in result.reliability}) < 2:
        legend = [("before", "all labels")]
    reliability = draw_picture("Reliability", caption, "pair", legend, _reliability(result))
    segment_caption = ""
    if search is not None:
        segment_caption = (
            f"The worst of {search.tried:,} segments by {', '.join(search.columns)}; the intervals"
            f" hold for all together at {1 - search.alpha:.0%}."
        )
    html = render(
        "replay.html",
        series=2,
        metrics={},
        title=title,
        classes=f"{result.rows:,}",
        outputs="predictions",
        input=names.values,
        state=result.state,
        reason=f"{last.reason[0].upper()}{last.reason[1:]}.",
        facts=f"{result.labelled:,} labels, {result.late:,} of them too late;"
        f" {result.immature:,} predictions are too young.",
        warnings=list(warnings),
        adaptation=None if result.adaptation is None else _adaptation(result.adaptation),
        events=[
            {"time": time_text(e.time), "state": e.status.state, "reason": e.status.reason}
            for e in result.events
        ],
        pictures=[states, reliability],
        segments=[] if search is None else search.segments[:_MAX_SEGMENTS],
        segment_caption=segment_caption,
        frequency=names.frequency,
        probability=f"mean of {names.values}",
    )
    return ReplayReport(html)


def _adaptation(summary: AdaptationSummary) -> dict[str, Any]:
    """Return a sentence and the rows of the table of states."""
    text = summary.sentence()
    rows = [
        (
            state.number,
            time_text(state.time),
            ", ".join(f"{share:.1%}" for share in state.priors[:_MAX_SHARES]),
            f"{state.gain:.4f}",
            f"{state.weight:.3f}",
            f"{state.evidence:+.1f}",
        )
        for state in summary.states[-_MAX_STATES:]
    ]
    return {"sentence": f"{text[0].upper()}{text[1:]}.", "states": rows}


def _reliability(result: Replay) -> alt.LayerChart | alt.FacetChart:
    """Return accuracy over confidence of the bins of each period, with intervals."""
    names, rows = TARGET_NAMES[result.target], result.reliability
    periods = [*dict.fromkeys(row["period"] for row in rows)]
    axes = {
        "x": alt.X("confidence:Q", axis=percent(names.probability), scale=alt.Scale(zero=False)),
        "y": alt.Y("accuracy:Q", axis=percent(names.frequency), scale=alt.Scale(zero=False)),
    }
    series = inline([row | {"series": row["period"]} for row in rows])
    base, color = alt.Chart(series, width=2 * SIDE, height=SIDE), colours(periods)
    bars = base.mark_rule().encode(x=axes["x"], y=alt.Y("low:Q"), y2="high:Q", color=color)
    points = base.mark_line(point=True, strokeWidth=1).encode(
        **axes, color=color, detail="period:N"
    )
    ends = [row["confidence"] for row in rows]
    line = inline([{"confidence": end, "accuracy": end} for end in (min(ends), max(ends))])
    diagonal = alt.Chart(line).mark_line(strokeDash=[5, 4], color=REFERENCE).encode(**axes)
    return apply_style(alt.layer(diagonal, bars, points), legend_columns=2)
