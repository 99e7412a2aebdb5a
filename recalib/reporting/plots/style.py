"""Common style and data of all plots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from recalib.errors import InputError
from recalib.metrics import BinState, Predictions
from recalib.metrics.ece import ExpectedCalibrationError

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

__all__ = [
    "BLUE",
    "DASHES",
    "FIFTHS",
    "GREY",
    "INK",
    "LEVEL",
    "LIGHT",
    "PALETTE",
    "REFERENCE",
    "SHAPES",
    "SIDE",
    "check_bins",
    "check_series",
    "colours",
    "facts",
    "inline",
    "percent",
    "state_of",
    "styled",
    "title",
]

#: Confidence level of every interval and band.
LEVEL = 0.95
#: Width of a panel in pixels, and its height if the y axis is a share too.
SIDE = 300

#: Blue and light orange: distinct for every kind of colour vision and in greyscale.
BLUE, LIGHT, GREY, INK = "#3f7fb5", "#fbc47b", "#8c8c8c", "#222222"
#: Colours of several series (Okabe and Ito 2008), alternately dark and light; dashes and shapes
#: distinguish them in greyscale.
PALETTE = (
    "#0072b2",
    "#e69f00",
    "#222222",
    "#cc79a7",
    "#009e73",
    "#d55e00",
    "#56b4e9",
    "#8c8c8c",
)
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [1, 0], [7, 3], [2, 2], [9, 3, 2, 3])
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
#: Colour of reference lines.
REFERENCE = "#555555"
FIFTHS = [0, 0.2, 0.4, 0.6, 0.8, 1]
_MOST_BINS = 100

Chart = TypeVar("Chart", bound="ChartType")


def styled(chart: Chart, legend_columns: int) -> Chart:
    """Return the plot with fonts, sizes and the legend below."""
    import altair as alt

    configured: Any = chart.configure(
        font="Liberation Sans, Arial, Helvetica, sans-serif",
        padding=12,
        view=alt.ViewConfig(stroke="#bbbbbb"),
        axis=alt.AxisConfig(
            labelFontSize=12,
            labelColor=INK,
            titleFontSize=13,
            titleFontWeight="normal",
            titleColor=INK,
            gridColor="#e6e6e6",
            tickColor="#bbbbbb",
        ),
        legend=alt.LegendConfig(
            orient="bottom",
            columns=legend_columns,
            labelFontSize=12,
            labelLimit=0,
            labelColor=INK,
        ),
        range=alt.RangeConfig(category=[BLUE, LIGHT]),
        title=alt.TitleConfig(fontSize=16, subtitleFontSize=12.5, subtitleColor=INK),
    ).properties(
        # Vega's menu may export an image, but not send the data to the online editor.
        usermeta={"embedOptions": {"actions": {"export": True, "editor": False}}}
    )
    finished: Chart = configured
    return finished


def inline(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows as the data of a plot.

    It is a tuple, because Altair deep-copies lists in each step.
    """
    import altair as alt

    return alt.InlineData(values=tuple(rows))


def title(text: str, subtitle: list[str], width: int = SIDE) -> alt.Title:
    """Return a left-aligned title, cut at the width of the plot."""
    import altair as alt

    return alt.Title(
        text, subtitle=subtitle, anchor="start", limit=width, offset=10, subtitlePadding=5
    )


def percent(text: str | None, values: list[float] | None = None) -> alt.Axis:
    """Return an axis in percent."""
    import altair as alt

    if values is None:
        return alt.Axis(format="~%", title=text, tickCount=5)
    return alt.Axis(format="%", title=text, values=values, labelFlush=False)


def colours(labels: Collection[str], channel: str = "color", reference: str | None = None) -> Any:
    """Return the encoding of series on a channel: `color`, `strokeDash` or `shape`.

    `reference` is the label of a reference line, which is thin, dashed and grey.
    """
    import altair as alt

    ranges: dict[str, Any] = {"color": PALETTE, "strokeDash": DASHES, "shape": SHAPES}
    kinds = {"color": alt.Color, "strokeDash": alt.StrokeDash, "shape": alt.Shape}
    domain, values = list(labels), list(ranges[channel][: len(labels)])
    if reference is not None:
        domain.append(reference)
        values.append({"color": REFERENCE, "strokeDash": [4, 3]}[channel])
    legend = alt.Legend(symbolOpacity=1, symbolStrokeWidth=0)
    if channel != "shape" and reference is not None:
        legend = alt.Legend(symbolOpacity=1, symbolType="stroke", symbolSize=400)
    scale = alt.Scale(domain=domain, range=values)
    return kinds[channel]("series:N", scale=scale, title=None, legend=legend)


def check_series(series: Mapping[str, Predictions], *, least: int = 1, most: int = 2) -> None:
    """Raise `InputError` for a wrong number of series, no rows, or confidences outside [0, 1]."""
    counts = {(1, 2): "one or two", (2, 2): "two"}.get((least, most), f"{least} to {most}")
    if not least <= len(series) <= most:
        raise InputError("series", found=f"{len(series)} series", accepted=counts)
    for name, predictions in series.items():
        if len(predictions) == 0:
            raise InputError(f"series[{name!r}]", found="no rows", accepted="at least one row")
        p = predictions.confidences
        if not (p.min() >= 0 and p.max() <= 1):
            found = f"confidences from {p.min()} to {p.max()}"
            raise InputError(f"series[{name!r}]", found=found, accepted="numbers from 0 to 1")


def check_bins(bins: int) -> None:
    """Raise `InputError` for a number of bins that cannot be displayed."""
    if not 1 <= bins <= _MOST_BINS:
        raise InputError("bins", found=str(bins), accepted=f"at least 1, at most {_MOST_BINS}")


def state_of(predictions: Predictions, bins: int) -> BinState:
    """Return the sums of top-label confidences in M equal-width bins."""
    state = BinState(bins)
    state.add(predictions)
    return state


def facts(state: BinState) -> list[str]:
    """Return the title of a series."""
    ece = ExpectedCalibrationError(state.bins).estimate(state, LEVEL)
    rows = int(state.count.sum())
    accuracy, confidence = state.correct.sum() / rows, state.confidence.sum() / rows
    return [
        f"ECE {ece.value:.2%} ({LEVEL:.0%} interval {ece.low:.2%} to {ece.high:.2%})",
        f"accuracy {accuracy:.2%}, mean confidence {confidence:.2%}",
        f"n = {rows:,}",
    ]
