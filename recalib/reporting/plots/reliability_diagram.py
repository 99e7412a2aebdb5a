"""The reliability diagram: accuracy over confidence, in bars or as a smooth curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from recalib.metrics import Predictions
from recalib.reporting.plots.bar_panels import accuracy_bars, bar_rows, share_bars
from recalib.reporting.plots.curve_panels import accuracy_curve
from recalib.reporting.plots.smooth_curve import FINE_BINS, smooth_curve
from recalib.reporting.plots.style import (
    LEVEL,
    apply_style,
    check_bins,
    check_series,
    inline,
    series_colours,
    title,
)
from recalib.reporting.plots.view import View, view_of

if TYPE_CHECKING:
    import altair as alt


def reliability_diagram(
    series: Mapping[str, Predictions], *, bins: int = 15, smooth: bool = False
) -> alt.HConcatChart:
    """Return a reliability diagram: accuracy over confidence, a panel for each series.

    Of two classes it is the frequency of class 1 over P(y = 1), from 0 to 1. If at most 10% of the
    rows have class 1, axes and bins are on a square-root scale: otherwise nearly all rows are in
    the first bin.

    Bars are the accuracy in equal-width bins of confidence, with Wilson's 95% intervals. The
    shaded part is the gap between accuracy and mean confidence, which ECE averages; it ends on
    the diagonal at the bin's mean confidence. With `smooth`, accuracy is a curve with a pointwise
    95% band (`smooth_curve`), and the gap between the curve and the diagonal is shaded. A strip
    below shows the share of rows in each bin; an empty bin shows nothing.

    Parameters
    ----------
    series: one, or two such as `before` and `after`, by the title of the panel.
    bins: M, as for ECE; at most 100.
    smooth: a curve instead of bars.

    Raises
    ------
    InputError: no series or more than two, one without rows, or bins out of range.
    """
    import altair as alt

    check_series(series)
    check_bins(bins)
    view, series = view_of(series)
    states = {name: view.state(predictions, bins) for name, predictions in series.items()}
    max_share = max(float(state.count.max() / state.count.sum()) for state in states.values())
    panels = []
    for (name, state), colour in zip(states.items(), series_colours(len(series)), strict=True):
        upper = _curve(series[name], colour, view) if smooth else accuracy_bars(colour, view)
        heading = title(name, view.facts(series[name], bins))
        panels.append(
            alt.vconcat(
                upper,
                share_bars(max_share, view),
                data=inline(bar_rows(state, view)),
                spacing=8,
                title=heading,
            )
        )
    diagram: alt.HConcatChart = alt.hconcat(*panels, spacing=24).resolve_scale(
        color="independent", strokeDash="shared"
    )
    return apply_style(diagram, legend_columns=2)


def _curve(predictions: Predictions, colour: str, view: View) -> alt.LayerChart | alt.FacetChart:
    curve = smooth_curve(view.state(predictions, FINE_BINS), LEVEL, is_root=view.is_root)
    return accuracy_curve(curve, colour, view)
