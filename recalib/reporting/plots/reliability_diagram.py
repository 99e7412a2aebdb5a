"""The reliability diagram: accuracy over confidence, in bars or as a smooth curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from recalib.core.card import ReliabilityBins
from recalib.metrics import Predictions
from recalib.reporting.plots.bar_panels import (
    accuracy_bars,
    bar_rows,
    largest_share,
    panels_of_series,
    row_of_panels,
    share_bars,
)
from recalib.reporting.plots.curve_panels import accuracy_curve
from recalib.reporting.plots.smooth_curve import FINE_BINS, smooth_curve
from recalib.reporting.plots.style import LEVEL, SIDE, inline, series_colours
from recalib.reporting.plots.view import TOP_LABEL, View, binary_view
from recalib.stats.sums import Bins


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

    def panel(
        predictions: Predictions, state: Bins, max_share: float, colour: str, view: View
    ) -> alt.VConcatChart:
        upper = _curve(predictions, colour, view) if smooth else accuracy_bars(colour, view)
        return _with_strip(upper, state, max_share, view)

    return panels_of_series(series, bins, panel)


def diagram_of_card(
    series: Mapping[str, ReliabilityBins], *, classes: int, side: int = SIDE, has_strip: bool = True
) -> alt.HConcatChart:
    """Return the bars of `reliability_diagram` from the sums of a card.

    Parameters
    ----------
    series: one or two, by the title of the panel.
    classes: K.
    side: width and height of a panel without a strip, in pixels.
    has_strip: whether a strip below shows the share of rows; without, there is no legend.
    """
    states = {name: _state(sums) for name, sums in series.items()}
    is_root = any(sums.is_root for sums in series.values())
    view = binary_view(is_root=is_root) if classes == 2 else TOP_LABEL
    share = max(largest_share(state) for state in states.values())
    panels: list[Any] = []
    for (name, state), colour in zip(states.items(), series_colours(len(states)), strict=True):
        if has_strip:
            panel: Any = _with_strip(accuracy_bars(colour, view), state, share, view)
        else:
            panel = accuracy_bars(colour, view, side=side, has_strip=False)
            panel = panel.properties(data=inline(bar_rows(state, view)))
        panels.append(panel.properties(title=name))
    row = row_of_panels(panels)
    row.config.legend.disable = not has_strip
    return row


def _state(sums: ReliabilityBins) -> Bins:
    state = Bins(len(sums.count), weighted=bool(sums.weight))
    names = ("count", "confidence", "correct", "weight", "squared_weight")
    for name in names if state.weighted else names[:3]:
        setattr(state, name, np.array(getattr(sums, name)))
    return state


def _with_strip(upper: Any, state: Bins, max_share: float, view: View) -> alt.VConcatChart:
    """Return a panel above the shares of rows in its bins."""
    strip = share_bars(max_share, view)
    return alt.vconcat(upper, strip, data=inline(bar_rows(state, view)), spacing=8)


def _curve(predictions: Predictions, colour: str, view: View) -> alt.LayerChart | alt.FacetChart:
    curve = smooth_curve(view.state(predictions, FINE_BINS), LEVEL, is_root=view.is_root)
    return accuracy_curve(curve, colour, view)
