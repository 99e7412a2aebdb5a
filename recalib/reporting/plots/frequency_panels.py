"""Small reliability diagrams of classes or labels: frequency over probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recalib.errors import InputError
from recalib.reporting.plots.bar_panels import accuracy_bars, bar_rows
from recalib.reporting.plots.style import BLUE, apply_style, inline, title
from recalib.reporting.plots.view import FREQUENCY, View
from recalib.stats.sums import Bins

if TYPE_CHECKING:
    import altair as alt

_SIDE, _COLUMNS, _MOST_PANELS = 180, 3, 12


def check_worst(worst: int) -> None:
    """Raise `InputError` for a number of panels that cannot be displayed."""
    if not 1 <= worst <= _MOST_PANELS:
        raise InputError("worst", found=str(worst), accepted=f"1 to {_MOST_PANELS}")


def frequency_panel(
    name: str, error: float, state: Bins, view: View = FREQUENCY
) -> alt.LayerChart | alt.FacetChart:
    """Return bars of the frequency of a class by its probability, with its calibration error."""
    occurred = int(state.correct.sum())
    panel: alt.LayerChart | alt.FacetChart = accuracy_bars(
        BLUE, view, side=_SIDE, has_strip=False
    ).properties(
        data=inline(bar_rows(state, view)),
        title=title(name, [f"error {error:.2%}", f"label of {occurred:,} rows"], _SIDE),
    )
    return panel


def frequency_grid(
    panels: list[alt.LayerChart | alt.FacetChart], heading: str, facts: list[str]
) -> alt.ConcatChart:
    """Return panels in rows of three, with a title and facts above."""
    import altair as alt

    width = _SIDE * min(len(panels), _COLUMNS)
    diagram: alt.ConcatChart = alt.concat(
        *panels,
        columns=_COLUMNS,
        spacing=24,
        title=title(heading, facts, max(width, 300)),
    ).resolve_scale(color="shared", strokeDash="shared")
    return apply_style(diagram, legend_columns=2)
