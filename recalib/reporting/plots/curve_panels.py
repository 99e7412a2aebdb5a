"""Curve panels: smooth accuracy over confidence with bands."""

from __future__ import annotations

from typing import Any

import altair as alt

from recalib.reporting.plots.bar_panels import PERFECT, diagonal
from recalib.reporting.plots.smooth_curve import SmoothCurve
from recalib.reporting.plots.style import (
    GAP,
    LEVEL,
    SIDE,
    inline,
    percent,
    records,
    share_tooltips,
    tint,
)
from recalib.reporting.plots.view import View

_GAP = "gap to perfect calibration"


def curve_rows(curve: SmoothCurve) -> list[dict[str, Any]]:
    """Return the points of a curve, rounded to 1e-6, much less than a pixel."""
    columns = {
        "at": curve.confidence,
        "accuracy": curve.accuracy,
        "low": curve.low,
        "high": curve.high,
    }
    pieces = curve.piece.tolist()
    return [row | {"piece": n} for row, n in zip(records(columns), pieces, strict=True)]


def curve_axes(view: View) -> dict[str, Any]:
    """Return the x and y channels of a rate over its probability; a strip below has the x axis."""
    unit = view.scale()
    hidden_axis = alt.Axis(labels=False, ticks=False, title=None, values=view.ticks)
    return {
        "x": alt.X("at:Q", scale=unit, axis=hidden_axis),
        "y": alt.Y("accuracy:Q", scale=unit, axis=percent(view.rate, view.ticks)),
    }


def accuracy_curve(curve: SmoothCurve, colour: str, view: View) -> alt.LayerChart | alt.FacetChart:
    """Return a curve with its band, the gap to the diagonal, and the diagonal."""
    axes = curve_axes(view)
    smoothed, band = f"{view.rate}, smoothed", f"{LEVEL:.0%} band of {view.rate}, at each point"
    base = alt.Chart(inline(curve_rows(curve)), width=SIDE, height=SIDE).encode(
        detail="piece:N", tooltip=point_tooltip(view)
    )
    square = alt.Legend(symbolType="square", symbolOpacity=1, symbolStrokeWidth=0)
    scale = alt.Scale(domain=[smoothed, _GAP, band], range=[colour, GAP, tint(colour)])
    fill = alt.Color("what:N", scale=scale, title=None, legend=square)
    dashed = alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=[PERFECT], range=[[4, 3]]), title=None
    )

    def named(label: str) -> alt.Chart:
        return base.transform_calculate(what=f"'{label}'").encode(color=fill)

    return alt.layer(
        named(_GAP).mark_area().encode(**axes, y2="at:Q"),
        named(band).mark_area(opacity=0.55).encode(x=axes["x"], y="low:Q", y2="high:Q"),
        # Edges, because the band and the gap look alike in greyscale.
        *(
            base.mark_line(stroke=colour, strokeWidth=0.8).encode(x=axes["x"], y=f"{end}:Q")
            for end in ("low", "high")
        ),
        named(smoothed).mark_line(strokeWidth=2.5).encode(**axes),
        diagonal().encode(strokeDash=dashed),
    )


def point_tooltip(view: View) -> list[alt.Tooltip]:
    """Return the tooltip of a point of a curve."""
    columns = {"at": view.score, "accuracy": view.rate, "low": "band from", "high": "to"}
    return share_tooltips(columns)
