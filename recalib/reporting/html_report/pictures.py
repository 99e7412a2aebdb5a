"""Pictures of a report: static SVG, which the page arranges by the width of the window."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import markupsafe
from altair.typing import ChartType

from recalib.metrics import Predictions
from recalib.reporting.html_report.shift import UnderShift, draw_shift
from recalib.reporting.plots import (
    classwise_diagram,
    confidence_histogram,
    reliability_diagram,
    reliability_overlay,
    risk_coverage,
)
from recalib.reporting.plots.save import to_svg
from recalib.reporting.plots.style import panels
from recalib.reporting.plots.view import TOP_LABEL, view_of

#: Width of the axes in pixels: labels have 11 to 15 pixels on a phone and on a desktop.
_WIDTH = 300
#: What the reliability diagram shows, by its x axis.
_BAR_CAPTIONS = {
    "confidence": "Bars are the accuracy. On the diagonal, predictions with confidence 80% are "
    "right in 80% of cases. ECE is the average gap between the bars and the diagonal.",
    "P(y = 1)": "Bars are the frequency of class 1. On the diagonal, 80% of the rows with "
    "P(y = 1) = 80% have class 1. ECE is the average gap between the bars and the diagonal, over "
    "15 equally wide bins.",
}
_ROOT_CAPTION = " Class 1 is rare: the axes have a square-root scale."
#: Width of the picture of shifted test sets on a desktop, where it has a row of its own.
_FULL_WIDTH = 760


@dataclass(frozen=True)
class ReportPicture:
    """A picture with its caption.

    `layout` names the style of the page: `half` takes half a row of a wide window; `pair` and
    `grid` arrange several panels in a row; `full` has a drawing for a wide window and one for a
    narrow window. `legend` has the style and the label of each mark.
    """

    title: str
    caption: str
    layout: str
    legend: list[tuple[str, str]]
    drawings: list[markupsafe.Markup]
    #: The Vega-Lite specification of each drawing, with its legend.
    specifications: list[dict[str, Any]]


def draw_pictures(
    series: Mapping[str, Predictions], names: Sequence[str] | None, shift: Sequence[UnderShift]
) -> list[ReportPicture]:
    """Return the pictures of one or two predictions by their labels, in the order of the page.

    Parameters
    ----------
    series: one prediction, or the first and the second to compare.
    names: a name for each class; numbers by default.
    shift: the results on shifted test sets; empty for no picture of them.
    """
    pictures = _pictures(series, names)
    if shift:
        pictures.append(
            draw_picture(
                "When the data shift",
                "ECE on the test set and on each shifted one, with 95% intervals. The calibrator "
                "is the same everywhere: fitted to the validation rows.",
                "full",
                _series_legend(series),
                *(draw_shift(shift, list(series), width) for width in (_FULL_WIDTH, _WIDTH)),
            )
        )
    return pictures


def _pictures(
    series: Mapping[str, Predictions], names: Sequence[str] | None
) -> list[ReportPicture]:
    is_pair = len(series) == 2
    pair = "pair" if is_pair else "half"
    view, _ = view_of(series)
    title = f"{view.rate[0].upper()}{view.rate[1:]} by {view.score}"
    with_event, without_event = view.events
    pictures = [
        draw_picture(
            title,
            _BAR_CAPTIONS[view.score] + (_ROOT_CAPTION if view.is_root else ""),
            pair,
            bar_legend(view.rate, view.score),
            *panels(reliability_diagram(series)),
        ),
        _smooth_picture(series, title),
        draw_picture(
            "Error rate of the most confident rows",
            "By their share of all rows, with 95% bands.",
            "half",
            [*_series_legend(series), ("dashed", "best possible order of these rows")],
            risk_coverage(series, width=_WIDTH),
        ),
        draw_picture(
            f"Distribution of {view.score}",
            f"The share of rows by {view.score}, {with_event} and {without_event}. The distance of "
            "the two lines is the overall error.",
            pair,
            [
                ("right", f"{with_event} rows"),
                ("wrong", f"{without_event} rows"),
                ("line", view.rate),
                ("dashed", f"mean {view.score}"),
            ],
            *panels(confidence_histogram(series)),
        ),
    ]
    if view == TOP_LABEL:  # of two classes it is the first picture again
        pictures.append(_classwise_picture(series, names))
    return pictures


def _classwise_picture(
    series: Mapping[str, Predictions], names: Sequence[str] | None
) -> ReportPicture:
    name, predictions = list(series.items())[-1]
    return draw_picture(
        "Classes with the largest error" + (f", {name}" if len(series) == 2 else ""),
        "Bars are the frequency of a class by its predicted probability; the classes with the "
        "largest error first.",
        "grid",
        bar_legend("frequency", "probability"),
        *panels(classwise_diagram(predictions, classes=names)),
    )


def _smooth_picture(series: Mapping[str, Predictions], title: str) -> ReportPicture:
    legend = [*_series_legend(series), ("dashed", "perfect calibration")]
    if len(series) == 1:
        legend.insert(1, ("gap", "gap to perfect calibration"))
        chart = panels(reliability_diagram(series, smooth=True))[0]
    else:
        chart = reliability_overlay(series, width=_WIDTH)
    return draw_picture(
        f"{title}, smoothed",
        "The same without bins, with 95% bands.",
        "half",
        legend,
        chart,
    )


def _series_legend(series: Mapping[str, Predictions]) -> list[tuple[str, str]]:
    """Return the marks of series; one alone has the colour of a calibrated one."""
    return list(zip(("before", "after") if len(series) == 2 else ("after",), series, strict=True))


def bar_legend(value: str, score: str) -> list[tuple[str, str]]:
    """Return the marks of bars of `value` over `score`."""
    return [
        ("gap", f"gap between {value} and mean {score}"),
        ("interval", f"95% interval of {value}"),
        ("dashed", "perfect calibration"),
    ]


def draw_picture(
    title: str, caption: str, layout: str, legend: list[tuple[str, str]], *charts: ChartType
) -> ReportPicture:
    """Return a picture with a drawing of each chart."""
    specifications = [chart.to_dict() for chart in charts]
    drawings = []
    for specification in specifications:
        drawn = _without_legends(specification)
        if layout in ("half", "full"):  # the page has this title
            drawn.pop("title", None)
        drawings.append(_svg(drawn))
    return ReportPicture(title, caption, layout, legend, drawings, specifications)


def _without_legends(specification: Any) -> Any:
    """Return a specification without legends, which the page has as text."""
    if isinstance(specification, list):
        return [_without_legends(part) for part in specification]
    if not isinstance(specification, dict):
        return specification
    channels = {"color", "shape", "strokeDash"} & specification.keys()
    return {
        name: (part | {"legend": None})
        if name in channels and isinstance(part, dict)
        else (part if name == "datasets" else _without_legends(part))
        for name, part in specification.items()
    }


def _svg(specification: dict[str, Any]) -> markupsafe.Markup:
    """Return an SVG element without a size, which the page sets.

    Elements of one page share their names, so those of each drawing get a prefix.
    """
    prefix = f"p{hashlib.sha256(repr(specification).encode()).hexdigest()[:12]}-"
    svg = re.sub(r' width="[\d.]+" height="[\d.]+"', "", to_svg(specification), count=1)
    svg = re.sub(r'( id="|url\(#)', rf"\g<1>{prefix}", svg)
    return markupsafe.Markup(svg)  # noqa: S704 - Vega escapes all text
