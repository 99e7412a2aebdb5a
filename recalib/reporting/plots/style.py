"""Common style and data of all plots."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import altair as alt
import numpy as np
from altair.typing import ChartType
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics import Predictions

#: Confidence level of every interval and band.
LEVEL = 0.95
#: Width of a panel in pixels, and its height if the y axis is a share too.
SIDE = 300

#: A hue has one meaning. Orange and blue are predictions before and after calibration, pink is
#: the gap between confidence and accuracy, grey counts rows, and ink is for references and text.
#: The hues are those of Okabe and Ito (2008), distinct for every kind of colour vision.
ORANGE, BLUE, GAP, GREY, INK = "#e69f00", "#0072b2", "#cc79a7", "#8c8c8c", "#222222"
#: Colours of several series, alternately light and dark; dashes and shapes distinguish them in
#: greyscale. A picture with a gap has at most two series.
PALETTE = (
    ORANGE,
    BLUE,
    INK,
    GAP,
    "#009e73",
    "#d55e00",
    "#56b4e9",
    GREY,
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
_GRID, _FRAME, _AXIS = "#e6e6e6", "#bbbbbb", "#888"
FIFTHS = [0, 0.2, 0.4, 0.6, 0.8, 1]
_MOST_BINS = 100

Chart = TypeVar("Chart", bound="ChartType")


def apply_style(chart: Chart, legend_columns: int) -> Chart:
    """Return the plot with fonts, sizes and the legend below."""
    return chart.configure(
        font="Liberation Sans, Arial, Helvetica, sans-serif",
        padding=12,
        view=alt.ViewConfig(stroke=_FRAME),
        axis=alt.AxisConfig(
            labelFontSize=12,
            labelColor=INK,
            titleFontSize=13,
            titleFontWeight="normal",
            titleColor=INK,
            gridColor=_GRID,
            tickColor=_FRAME,
            domainColor=_AXIS,
        ),
        legend=alt.LegendConfig(
            orient="bottom",
            columns=legend_columns,
            labelFontSize=12,
            labelLimit=0,
            labelColor=INK,
        ),
        title=alt.TitleConfig(fontSize=16, subtitleFontSize=12.5, subtitleColor=INK),
    ).properties(
        # Vega's menu may export an image, but not send the data to the online editor.
        usermeta={"embedOptions": {"actions": {"export": True, "editor": False}}}
    )


def inline(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows as the data of a plot.

    It is a tuple, because Altair deep-copies lists in each step.
    """
    return alt.InlineData(values=tuple(rows))


def records(columns: Mapping[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return the rows of columns, rounded to six digits."""
    table = {name: values.round(6).tolist() for name, values in columns.items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def share_tooltips(titles: Mapping[str, str]) -> list[alt.Tooltip]:
    """Return tooltips that show columns in percent, each with its title."""
    return [alt.Tooltip(f"{name}:Q", format=".2%", title=text) for name, text in titles.items()]


def panels(chart: alt.HConcatChart | alt.ConcatChart) -> list[ChartType]:
    """Return the panels of a plot as plots, for a page that arranges them by its own width."""
    parts: list[Any] = [part.copy() for part in getattr(chart, "hconcat", None) or chart.concat]
    for part in parts:
        part.config = chart.config
        if part.data is alt.Undefined:  # Altair moves data that all panels share to the top
            part.data = chart.data
    return parts


def series_colours(count: int) -> tuple[str, ...]:
    """Return the colours of series: blue for one, else orange first, then blue."""
    return (BLUE,) if count == 1 else PALETTE[:count]


def tint(colour: str) -> str:
    """Return a light tint of a colour `#rrggbb`."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.4 * (255 - channel)):02x}" for channel in channels)


#: What each colour becomes on a dark background, for a page with both.
DARK_COLOURS = {
    ORANGE: "#f0b340",
    BLUE: "#5aaae0",
    tint(ORANGE): "#7a5c22",
    tint(BLUE): "#2c5674",
    GAP: "#c987ab",
    GREY: "#7d8791",
    INK: "#dfe5ea",
    "#000": "#dfe5ea",
    REFERENCE: "#a9b3bc",
    _GRID: "#2f3942",
    _FRAME: "#4a5661",
    _AXIS: "#8a959f",
    "white": "#1b232b",
}


#: The mean width of a character of a title.
_CHARACTER = 9


def title(text: str, subtitle: list[str], width: int = SIDE) -> alt.Title:
    """Return a left-aligned title, in up to three lines of the width of the plot."""
    lines = textwrap.wrap(text, width // _CHARACTER, max_lines=3, placeholder=" …")
    return alt.Title(
        lines if len(lines) > 1 else text,
        subtitle=subtitle,
        anchor="start",
        limit=width,
        offset=10,
        subtitlePadding=5,
    )


def percent(text: str | None, values: list[float] | None = None) -> alt.Axis:
    """Return an axis in percent."""
    if values is None:
        return alt.Axis(format="~%", title=text, tickCount=5)
    return alt.Axis(format="%", title=text, values=values, labelFlush=False)


def colours(labels: Collection[str], channel: str = "color", reference: str | None = None) -> Any:
    """Return the encoding of series on a channel: `color`, `strokeDash` or `shape`.

    `reference` is the label of a reference line, which is thin, dashed and grey.
    """
    ranges: dict[str, Any] = {
        "color": series_colours(len(labels)), "strokeDash": DASHES, "shape": SHAPES
    }  # fmt: skip
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
