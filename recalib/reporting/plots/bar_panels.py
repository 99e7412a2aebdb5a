"""Bar panels: a rate over its probability, such as accuracy over confidence, and shares of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from recalib.metrics import Predictions
from recalib.metrics.mean_metrics import wilson
from recalib.reporting.plots.style import (
    GAP,
    GREY,
    INK,
    LEVEL,
    SIDE,
    apply_style,
    check_bins,
    check_series,
    inline,
    percent,
    series_colours,
    share_tooltips,
    title,
)
from recalib.reporting.plots.view import View, view_of
from recalib.stats.sums import Bins

_STRIP_HEIGHT = 70
#: Returns a panel of predictions, from their bins, their share of rows and their colour.
Panel = Callable[[Predictions, Bins, float, str, View], "alt.Chart | alt.LayerChart | Any"]
#: Label of the line of a perfectly calibrated model.
PERFECT = "perfect calibration"


def panels_of_series(
    series: Mapping[str, Predictions], bins: int, panel: Panel
) -> alt.HConcatChart:
    """Return a panel of each of one or two series, with its title, beside each other.

    `panel` also gets the largest share of rows in a bin, which all panels have as their scale.
    """
    check_series(series)
    check_bins(bins)
    view, series = view_of(series)
    states = {name: view.state(predictions, bins) for name, predictions in series.items()}
    share = max(largest_share(state) for state in states.values())
    panels = [
        panel(predictions, states[name], share, colour, view).properties(
            title=title(name, view.facts(predictions, bins))
        )
        for (name, predictions), colour in zip(
            series.items(), series_colours(len(series)), strict=True
        )
    ]
    return row_of_panels(panels)


def row_of_panels(panels: Sequence[Any]) -> alt.HConcatChart:
    """Return panels beside each other, which share their dashes and not their colours."""
    row: alt.HConcatChart = alt.hconcat(*panels, spacing=24).resolve_scale(
        color="independent", strokeDash="shared"
    )
    return apply_style(row, legend_columns=2)


def largest_share(state: Bins) -> float:
    """Return the largest share of rows, or of their weight, in a bin."""
    weights = state.moments.weight
    return float(weights.max() / weights.sum())


def bar_rows(state: Bins, view: View) -> list[dict[str, float]]:
    """Return the data of each nonempty bin of `view.state`."""
    rows, edges = [], view.edges(state.bins)
    weights, squares = state.moments.weight, state.squared.weight
    for k in np.flatnonzero(weights):
        rate, effective = float(state.correct[k] / weights[k]), float(weights[k] ** 2 / squares[k])
        low, high = wilson(rate * effective, effective, LEVEL)
        rows.append(
            {
                "from": float(edges[k]),
                "to": float(edges[k + 1]),
                "middle": view.middle(int(k), state.bins),
                "rows": int(state.count[k]),
                "share": float(weights[k] / weights.sum()),
                "confidence": float(state.confidence[k] / weights[k]),
                "accuracy": rate,
                "low": float(low),
                "high": float(high),
            }
        )
    return rows


def accuracy_bars(
    colour: str, view: View, *, side: int = SIDE, has_strip: bool = True
) -> alt.LayerChart | alt.FacetChart:
    """Return bars of the rate with their gaps and intervals, and the diagonal.

    Parameters
    ----------
    colour: of the bars.
    view: the rate and its probability.
    side: width and height.
    has_strip: whether a strip below has the x axis; axes without a strip have few labels.
    """
    what, unit = view.rate, view.scale()
    ticks = view.ticks if has_strip else view.few_ticks
    hidden_axis = alt.Axis(labels=False, ticks=False, title=None, values=ticks)
    axis = hidden_axis if has_strip else percent(view.score, ticks)
    y = alt.Y("accuracy:Q", scale=unit, axis=percent(what, ticks))
    base = alt.Chart(width=side, height=side).encode(tooltip=_tooltip(view))
    bars = base.encode(x=alt.X("from:Q", scale=unit, axis=axis), x2="to", y=y)
    gap = f"gap to mean {view.score}"
    fill = alt.Color("what:N", title=None, scale=alt.Scale(domain=[what, gap], range=[colour, GAP]))

    def with_label(label: str) -> alt.Chart:
        return bars.transform_calculate(what=f"'{label}'").encode(color=fill)

    return alt.layer(
        with_label(what).mark_rect(stroke="white").encode(y2=alt.datum(0)),
        # If accuracy is larger, the gap overlaps the bar: opacity keeps both visible.
        with_label(gap).mark_rect(stroke="white", opacity=0.85).encode(y2="confidence"),
        bars.mark_rule(stroke=INK, strokeWidth=2.5),
        base.mark_rule(stroke=INK, strokeWidth=1.5).encode(
            x="middle:Q",
            y="low:Q",
            y2="high",
            strokeDash=alt.datum(f"{LEVEL:.0%} interval of {what}"),
        ),
        diagonal().encode(strokeDash=alt.datum(PERFECT)),
    )


def diagonal() -> alt.Chart:
    """Return the diagonal, the line of a calibrated model."""
    rule = alt.MarkDef("rule", stroke=INK, strokeWidth=1.5)
    ends = {"x": alt.datum(0), "x2": alt.datum(1), "y": alt.datum(0), "y2": alt.datum(1)}
    return alt.Chart(inline([{"series": PERFECT}]), mark=rule).encode(**ends)


def share_bars(max_share: float, view: View) -> alt.Chart:
    """Return bars of the share of rows by probability, with one scale for all panels."""
    share = alt.Axis(format="%", title="rows", tickCount=3)
    rectangle = alt.MarkDef("rect", color=GREY)
    return alt.Chart(mark=rectangle, width=SIDE, height=_STRIP_HEIGHT).encode(
        x=view.x_axis("from"),
        x2="to",
        y=alt.Y("share:Q", scale=alt.Scale(domain=[0, max_share], nice=True), axis=share),
        y2=alt.datum(0),
        tooltip=_tooltip(view),
    )


def _tooltip(view: View) -> list[alt.Tooltip]:
    percentages = {
        "from": f"{view.score} over",
        "to": "up to",
        "accuracy": view.rate,
        "low": "interval from",
        "high": "to",
        "confidence": f"mean {view.score}",
    }
    return [alt.Tooltip("rows:Q", format=",", title="rows"), *share_tooltips(percentages)]
