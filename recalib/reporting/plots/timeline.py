"""Monitor timeline: calibration error, evidence and states over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import altair as alt

from recalib.drift.target import TARGET_NAMES
from recalib.errors import InputError
from recalib.reporting.plots.style import (
    BLUE,
    GREY,
    INK,
    REFERENCE,
    apply_style,
    inline,
    percent,
    title,
)

_WIDTH, _HEIGHT, _STRIP = 620, 170, 22
#: Distinct for every kind of colour vision and in greyscale.
STATE_COLOURS = {
    "fresh": "#9ecae1",
    "unverified": "#d9d9d9",
    "suspect": "#e69f00",
    "stale": "#7a1f1f",
}
#: Times in this range (years 2001 to 9999) are seconds since 1970, others relative seconds.
_EPOCH, _FAR = 1e9, 2.5e11


def timeline(
    windows: Sequence[Mapping[str, Any]], *, objective: float, heading: str
) -> alt.VConcatChart:
    """Return three panels over prediction time: ECE with interval and floor, log E, and states.

    A pale band around the interval is the interval for ECE under the assumed selection of labels.

    Parameters
    ----------
    windows: one for each cohort, in order, with `start`, `time`, `state`, and of `Evidence` at
        least `ece`, `ece_low`, `ece_high`, `ece_floor`, `log_evidence` and `threshold`; None
        values, and the band without `selection_low` and `selection_high`, are left out. The
        `target` of the last one names the error, `top_label` without it.
    objective: the largest acceptable ECE.

    Raises
    ------
    InputError: no windows.
    """
    if not windows:
        raise InputError("windows", found="none", accepted="at least one matured cohort")
    dated = windows[0]["start"] >= _EPOCH and windows[-1]["time"] < _FAR
    values = [_row(window, dated) for window in windows]
    data = inline(values)
    kind = "T" if dated else "Q"
    last = values[-1]
    error_name = TARGET_NAMES[windows[-1].get("target", "top_label")].error
    subtitle = [
        f"{last['state']} in the end; {len(values)} cohorts",
        f"objective: {error_name} below {objective:.1%}; the test rejects at log E"
        f" {windows[-1]['threshold']:.2f}",
    ]

    ratio = windows[-1].get("selection_ratio")
    if ratio is not None:
        subtitle.append(
            "pale band: labelling rates of right and wrong predictions differ by a factor up to"
            f" {ratio:g}"
        )
    if windows[-1].get("may_be_selection"):
        subtitle.append("the evidence may come from the selection of labels")

    def x(name: str, axis: bool = False) -> alt.X:
        time_axis = alt.Axis(title="prediction time (UTC)" if dated else "prediction time, seconds")
        hidden_axis = alt.Axis(labels=False, ticks=False, title=None)
        scale = alt.Scale(type="utc" if dated else "linear", nice=False, zero=False)
        return alt.X(f"{name}:{kind}", scale=scale, axis=time_axis if axis else hidden_axis)

    base = alt.Chart(data, width=_WIDTH, height=_HEIGHT).encode(x=x("time"), tooltip=_tooltip(kind))
    measured = base.transform_filter("isValid(datum.ece)")
    scale = alt.Scale(domain=[0, _highest(values, objective)], nice=False)
    error = alt.layer(
        measured.mark_area(color=BLUE, opacity=0.25, clip=True).encode(
            y=alt.Y("ece_low:Q", axis=percent("ECE, interval, floor"), scale=scale),
            y2="ece_high:Q",
        ),
        measured.transform_filter("isValid(datum.selection_low)")
        .mark_area(color=BLUE, opacity=0.12, clip=True)
        .encode(y="selection_low:Q", y2="selection_high:Q"),
        measured.mark_line(color=GREY, strokeDash=[2, 2], clip=True).encode(y="ece_floor:Q"),
        measured.mark_line(color=BLUE, strokeWidth=2, clip=True).encode(y="ece:Q"),
        _level(objective),
    )
    evidence = alt.layer(
        base.mark_line(color=INK, strokeWidth=2).encode(y=alt.Y("log_evidence:Q", title="log E")),
        _level(windows[-1]["threshold"]),
    )
    colours = alt.Scale(domain=list(STATE_COLOURS), range=list(STATE_COLOURS.values()))
    states = (
        alt.Chart(data, width=_WIDTH, height=_STRIP)
        .mark_rect()
        .encode(
            x=x("start", axis=True),
            x2="time",
            color=alt.Color("state:N", scale=colours, title=None),
            tooltip=_tooltip(kind),
        )
    )
    chart: alt.VConcatChart = alt.vconcat(
        error, evidence, states, spacing=8, title=title(heading, subtitle, _WIDTH)
    ).resolve_scale(x="shared")
    return apply_style(chart, legend_columns=4)


def _level(value: float) -> alt.Chart:
    rule = alt.MarkDef("rule", color=REFERENCE, strokeDash=[4, 3])
    return alt.Chart(inline([{"level": value}]), mark=rule).encode(y="level:Q")


def _highest(values: list[dict[str, Any]], objective: float) -> float:
    """Return the upper limit of the error panel; early windows with few labels may exceed it."""
    highs = (value["selection_high"] or value["ece_high"] for value in values)
    ends = sorted(high for high in highs if high is not None)
    typical = ends[int(0.9 * (len(ends) - 1))] if ends else 0.0
    return float(min(1.0, 1.25 * max(typical, objective)))


_SHARES = (
    "ece",
    "ece_low",
    "ece_high",
    "ece_floor",
    "selection_low",
    "selection_high",
    "coverage",
    "silent",
)
_NUMBERS = ("log_evidence", "n", "psi")


def _row(window: Mapping[str, Any], dated: bool) -> dict[str, Any]:
    """Return the data of a window, rounded to 1e-6, much less than a pixel."""
    row: dict[str, Any] = {"state": window["state"]}
    for name in (*_SHARES, *_NUMBERS):
        value = window.get(name)
        row[name] = None if value is None else round(value, 6)
    return {
        **row,
        "start": _time_value(window["start"], dated),
        "time": _time_value(window["time"], dated),
    }


def _time_value(time: float, dated: bool) -> float | str:
    return datetime.fromtimestamp(time, UTC).isoformat() if dated else time


def _tooltip(kind: str) -> list[alt.Tooltip]:
    times: dict[str, Any] = {"format": "%Y-%m-%d %H:%M", "formatType": "utc"} if kind == "T" else {}
    return [
        alt.Tooltip(f"time:{kind}", title="until", **times),
        alt.Tooltip("state:N"),
        *(alt.Tooltip(f"{name}:Q", format=".2%") for name in _SHARES),
        *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in _NUMBERS),
    ]
