"""The reliability diagram: accuracy over confidence, in bars or as a smooth curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from recalib.metrics import BinState, Predictions
from recalib.reporting.plots.bar_panels import accuracy_bars, bin_rows, share_bars
from recalib.reporting.plots.curve_panels import accuracy_curve
from recalib.reporting.plots.smooth_curve import FINE_BINS, smooth_curve
from recalib.reporting.plots.style import (
    LEVEL,
    apply_style,
    check_bins,
    check_series,
    facts,
    inline,
    series_colours,
    state_of,
    title,
)

if TYPE_CHECKING:
    import altair as alt

__all__ = ["reliability_diagram"]


def reliability_diagram(
    series: Mapping[str, Predictions], *, bins: int = 15, smooth: bool = False
) -> alt.HConcatChart:
    """Return a reliability diagram: accuracy over confidence, a panel for each series.

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
    states = {name: state_of(predictions, bins) for name, predictions in series.items()}
    max_share = max(float(state.weights.max()) for state in states.values())
    panels = []
    for (name, state), colour in zip(states.items(), series_colours(len(series)), strict=True):
        upper = _curve(series[name], colour) if smooth else accuracy_bars(colour)
        panels.append(_panel(name, upper, state, max_share))
    diagram: alt.HConcatChart = alt.hconcat(*panels, spacing=24).resolve_scale(
        color="independent", strokeDash="shared"
    )
    return apply_style(diagram, legend_columns=2)


def _panel(
    name: str,
    upper: alt.LayerChart | alt.FacetChart,
    state: BinState,
    max_share: float,
) -> alt.VConcatChart:
    import altair as alt

    return alt.vconcat(
        upper,
        share_bars(max_share),
        data=inline(bin_rows(state)),
        spacing=8,
        title=title(name, facts(state)),
    )


def _curve(predictions: Predictions, colour: str) -> alt.LayerChart | alt.FacetChart:
    return accuracy_curve(smooth_curve(state_of(predictions, FINE_BINS), LEVEL), colour)
