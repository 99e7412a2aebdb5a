"""Confidence histogram, with correct and wrong rows separated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from recalib.metrics import Predictions
from recalib.reporting.plots.bar_panels import panels_of_series
from recalib.reporting.plots.style import INK, SIDE, inline, percent, tint
from recalib.reporting.plots.view import View
from recalib.stats.sums import Bins

_HEIGHT = 240


def confidence_histogram(series: Mapping[str, Predictions], *, bins: int = 15) -> alt.HConcatChart:
    """Return the share of rows by confidence, a panel for each series.

    Bars are split into right and wrong rows. Lines mark accuracy and mean confidence: their
    distance is the overall over- or underconfidence. Of two classes they are rows of class 1 and
    class 0 by P(y = 1), with the frequency of class 1 and the mean of P(y = 1), on the axis of
    `reliability_diagram`.

    Parameters
    ----------
    series: one, or two such as `before` and `after`, by the title of the panel.
    bins: equal-width bins of confidence, at most 100.

    Raises
    ------
    InputError: no series or more than two, one without rows, or bins out of range.
    """
    return panels_of_series(series, bins, _panel)


def _rows(state: Bins, view: View) -> list[dict[str, Any]]:
    """Return the lower and upper limit of each part of each bar."""
    rows, bounds = [], view.edges(state.bins)
    total = int(state.count.sum())
    with_event, without_event = view.events
    for k in np.flatnonzero(state.filled):
        share, right = float(state.count[k] / total), float(state.correct[k] / total)
        edges = {"from": float(bounds[k]), "to": float(bounds[k + 1])}
        for outcome, low, high in ((with_event, 0.0, right), (without_event, right, share)):
            rows.append({**edges, "what": outcome, "low": low, "high": high, "share": high - low})
    return rows


def _panel(
    predictions: Predictions, state: Bins, max_share: float, colour: str, view: View
) -> alt.LayerChart | alt.FacetChart:
    rectangle = alt.MarkDef("rect", stroke="white", strokeWidth=0.5)
    colours = alt.Scale(domain=list(view.events), range=[colour, tint(colour)])
    bars = alt.Chart(inline(_rows(state, view)), mark=rectangle).encode(
        x=view.x_axis("from"),
        x2="to",
        y=alt.Y(
            "low:Q",
            # Rows of a rare class would be invisible on a linear scale.
            scale=view.scale([0, max_share], nice=True),
            axis=percent("rows"),
        ),
        y2="high",
        color=alt.Color("what:N", title=None, scale=colours),
        tooltip=[
            alt.Tooltip("what:N", title="rows"),
            *(alt.Tooltip(f"{k}:Q", format=".2%") for k in ("from", "to", "share")),
        ],
    )
    return alt.layer(bars, _marks(state, view), width=SIDE, height=_HEIGHT)


def _marks(state: Bins, view: View) -> alt.Chart:
    """Return the lines of the rate and the mean probability."""
    total = float(state.count.sum())
    values = {
        view.rate: float(state.correct.sum()) / total,
        f"mean {view.score}": float(state.confidence.sum()) / total,
    }
    rows = [{"mark": mark, "value": value} for mark, value in values.items()]
    dashes = alt.Scale(domain=list(values), range=[[1, 0], [5, 3]])
    return alt.Chart(inline(rows), mark=alt.MarkDef("rule", stroke=INK, strokeWidth=2)).encode(
        x="value:Q",
        strokeDash=alt.StrokeDash("mark:N", title=None, scale=dashes),
        tooltip=["mark:N", alt.Tooltip("value:Q", format=".2%")],
    )
