"""Before and after in one panel: two smooth curves of accuracy over confidence."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from recalib.metrics import Predictions
from recalib.reporting.plots.bar_panels import PERFECT, diagonal
from recalib.reporting.plots.curve_panels import curve_axes, curve_rows, point_tooltip
from recalib.reporting.plots.smooth_curve import FINE_BINS, smooth_curve
from recalib.reporting.plots.style import (
    LEVEL,
    apply_style,
    check_series,
    colours,
    inline,
    title,
)
from recalib.reporting.plots.view import View, view_of

_WIDTH, _STRIP_HEIGHT = 420, 80
_BINS = 15


def reliability_overlay(
    series: Mapping[str, Predictions], *, width: int = _WIDTH
) -> alt.VConcatChart:
    """Return the smoothed accuracy over confidence of two series in one panel, with 95% bands.

    Of two classes it is the frequency of class 1 over P(y = 1), as in `reliability_diagram`.

    Curves and bands are those of `reliability_diagram(smooth=True)`, distinguished by colour and
    dash. A strip below shows the share of rows in each of 15 bins of confidence.

    Parameters
    ----------
    series: two such as `before` and `after`, by their labels.
    width: of the axes, in pixels; accuracy has the same height.

    Raises
    ------
    InputError: not two series, or one without rows.
    """
    check_series(series, least=2)
    view, series = view_of(series)
    points, steps, lines = [], [], []
    for name, predictions in series.items():
        fine = view.state(predictions, FINE_BINS)
        curve = smooth_curve(fine, LEVEL, is_root=view.is_root)
        points += [{"series": name, **row} for row in curve_rows(curve)]
        steps += [{"series": name, **row} for row in _outline(predictions, view)]
        ece, _, rows = view.facts(predictions, _BINS)
        lines.append(f"{name}: {ece}, {rows}")
    heading = title(f"{view.rate[0].upper()}{view.rate[1:]} over {view.score}", lines, width)
    overlay = alt.vconcat(
        _curves(points, list(series), width, view),
        _strip(steps, list(series), width, view),
        spacing=8,
        title=heading,
    )
    return apply_style(overlay, legend_columns=3)


def _curves(
    points: list[dict[str, object]], names: list[str], width: int, view: View
) -> alt.LayerChart | alt.FacetChart:
    base = alt.Chart(inline(points), width=width, height=width).encode(
        detail="piece:N", tooltip=[alt.Tooltip("series:N", title="series"), *point_tooltip(view)]
    )
    axes = curve_axes(view)
    channels = [colours(names, channel, PERFECT) for channel in ("color", "strokeDash")]
    line = base.mark_line(strokeWidth=2.5).encode(**axes, color=channels[0], strokeDash=channels[1])
    band = base.mark_area(opacity=0.25).encode(
        x=axes["x"], y="low:Q", y2="high:Q", color=channels[0]
    )
    perfect = diagonal().encode(color=channels[0], strokeDash=channels[1])
    return alt.layer(band, line, perfect)


def _outline(predictions: Predictions, view: View) -> list[dict[str, float]]:
    """Return the share of rows of each bin by its lower edge, and 0 at the last edge."""
    counts = view.state(predictions, _BINS).count
    shares = [*(counts / counts.sum()).tolist(), 0.0]
    edges = view.edges(_BINS).tolist()
    return [{"from": edge, "share": share} for edge, share in zip(edges, shares, strict=True)]


def _strip(steps: list[dict[str, object]], names: list[str], width: int, view: View) -> alt.Chart:
    line = alt.MarkDef("line", interpolate="step-after", strokeWidth=2)
    return alt.Chart(inline(steps), mark=line, width=width, height=_STRIP_HEIGHT).encode(
        x=view.x_axis("from"),
        y=alt.Y("share:Q", axis=alt.Axis(format="%", title="rows", tickCount=3)),
        color=colours(names, "color", PERFECT),
        strokeDash=colours(names, "strokeDash", PERFECT),
        tooltip=["series:N", alt.Tooltip("share:Q", format=".2%")],
    )
