"""Pictures of calibration: the reliability diagram, as a Vega-Lite specification and as files.

Altair writes the specification and vl-convert renders it, offline. Both are imported where they
are used, since they take a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recalib.errors import InputError
from recalib.files import write_atomically
from recalib.metrics import BinState, Predictions
from recalib.metrics.ece import ExpectedCalibrationError
from recalib.metrics.means import wilson

if TYPE_CHECKING:
    import altair as alt

__all__ = ["check_suffix", "reliability_diagram", "save"]

_LEVEL = 0.95
_SIDE, _HISTOGRAM_HEIGHT = 300, 70

#: Blue and a light orange: told apart by every kind of colour vision, and in grey by lightness.
_BLUE, _ORANGE, _GREY, _INK = "#3f7fb5", "#fbc47b", "#8c8c8c", "#222222"
_FIFTHS = [0, 0.2, 0.4, 0.6, 0.8, 1]
_ACCURACY, _GAP = "accuracy", "gap to mean confidence"
_BAND, _DIAGONAL = f"{_LEVEL:.0%} interval of accuracy", "perfect calibration"

_SUFFIXES = (".png", ".svg", ".html", ".json")

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Reliability diagram</title></head>
<body><div id="diagram"></div>
<script>{library}</script>
<script>vegaEmbed("#diagram", {specification});</script>
</body>
</html>
"""


def reliability_diagram(series: Mapping[str, Predictions], *, bins: int = 15) -> alt.HConcatChart:
    """Return a reliability diagram: accuracy over confidence, a panel for each series.

    Bars are the accuracy in equal-width bins of confidence, with Wilson's 95% interval each. The
    shaded part is the gap between accuracy and mean confidence, which ECE averages; it ends on
    the diagonal at the bin's mean confidence. Beneath is the share of rows in each bin; a bin
    without rows shows nothing.

    Parameters
    ----------
    series: one, or two such as `before` and `after`, by the title of the panel.
    bins: M, as for ECE.

    Raises
    ------
    InputError: no series or more than two, or no bins.
    """
    import altair as alt

    if not 1 <= len(series) <= 2:
        raise InputError("series", found=f"{len(series)} series", accepted="one or two")
    if bins < 1:
        raise InputError("bins", found=str(bins), accepted="at least 1")
    states = {title: _state(predictions, bins) for title, predictions in series.items()}
    most = max(float(state.weights.max()) for state in states.values())
    panels = [
        _panel(title, state, most, leftmost=number == 0)
        for number, (title, state) in enumerate(states.items())
    ]
    diagram: alt.HConcatChart = (
        alt.hconcat(*panels, spacing=24)
        .resolve_scale(color="shared", strokeDash="shared")
        .configure(font="Liberation Sans, Arial, Helvetica, sans-serif", padding=12)
        .configure_view(stroke="#bbbbbb")
        .configure_axis(
            labelFontSize=12,
            labelColor=_INK,
            titleFontSize=13,
            titleFontWeight="normal",
            titleColor=_INK,
            gridColor="#e6e6e6",
            tickColor="#bbbbbb",
        )
        .configure_legend(
            orient="bottom",
            columns=len(series),
            labelFontSize=12,
            labelLimit=0,
            labelColor=_INK,
        )
        .configure_range(category=[_BLUE, _ORANGE])
        .configure_title(fontSize=16, subtitleFontSize=12.5, subtitleColor=_INK)
        # Vega's menu may export a picture, but not send the data to an editor on the web.
        .properties(usermeta={"embedOptions": {"actions": {"export": True, "editor": False}}})
    )
    return diagram


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Refuse a file name that `save` would refuse, before any long work."""
    suffix = Path(path).suffix
    if suffix.lower() not in _SUFFIXES:
        raise InputError("diagram", found=suffix or "no suffix", accepted=", ".join(_SUFFIXES))


def save(chart: alt.HConcatChart, path: str | os.PathLike[str]) -> None:
    """Write `chart` in the format of the path's suffix, whole or not at all.

    `.png` at twice the size, `.svg`, `.html` that needs no network, or `.json` with the
    specification.

    Raises
    ------
    InputError: another suffix, or a file that cannot be written.
    """
    check_suffix(path)
    write_atomically(Path(path), _rendered(chart, Path(path).suffix.lower()))


def _rendered(chart: alt.HConcatChart, suffix: str) -> bytes:
    import altair as alt
    import vl_convert

    specification = chart.to_json(indent=None)
    # vl-convert's names of versions are Altair's without the patch: v6.4.1 is v6.4.
    version = alt.SCHEMA_VERSION.rpartition(".")[0]
    if suffix == ".png":
        picture: bytes = vl_convert.vegalite_to_png(specification, vl_version=version, scale=2)
        return picture
    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(specification, vl_version=version)).encode()
    if suffix == ".html":
        library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
        # Neither Altair's page nor vl-convert's survives a title that holds `</script>`.
        harmless = specification.replace("<", "\\u003c")
        return _PAGE.format(library=library, specification=harmless).encode()
    return (specification + "\n").encode()


def _state(predictions: Predictions, bins: int) -> BinState:
    state = BinState(bins)
    state.add(predictions)
    return state


def _rows(state: BinState) -> list[dict[str, float]]:
    """Return what is drawn of each bin that holds anything."""
    rows = []
    for k in np.flatnonzero(state.filled):
        count, correct = int(state.count[k]), float(state.correct[k])
        low, high = wilson(correct, count, _LEVEL)
        rows.append(
            {
                "from": float(k / state.bins),
                "to": float((k + 1) / state.bins),
                "middle": float((k + 0.5) / state.bins),
                "rows": count,
                "share": float(count / state.count.sum()),
                "confidence": float(state.confidence[k] / count),
                "accuracy": correct / count,
                "low": float(low),
                "high": float(high),
            }
        )
    return rows


def _panel(title: str, state: BinState, most: float, *, leftmost: bool) -> alt.VConcatChart:
    import altair as alt

    return alt.vconcat(
        _reliability(leftmost),
        _histogram(most, leftmost),
        data=alt.InlineData(values=_rows(state)),
        spacing=8,
        title=alt.Title(
            title, subtitle=_facts(state), anchor="start", limit=_SIDE, offset=10, subtitlePadding=5
        ),
    )


def _facts(state: BinState) -> list[str]:
    ece = ExpectedCalibrationError(state.bins).estimate(state, _LEVEL)
    rows = int(state.count.sum())
    accuracy, confidence = state.correct.sum() / rows, state.confidence.sum() / rows
    return [
        f"ECE {ece.value:.2%} ({_LEVEL:.0%} interval {ece.low:.2%} to {ece.high:.2%})",
        f"accuracy {accuracy:.2%}, mean confidence {confidence:.2%}",
        f"n = {rows:,}",
    ]


def _reliability(leftmost: bool) -> alt.LayerChart | alt.FacetChart:
    """Return bars of accuracy with their gaps and intervals, and the diagonal."""
    import altair as alt

    unit = alt.Scale(domain=[0, 1], nice=False)
    hidden = alt.Axis(labels=False, ticks=False, title=None, values=_FIFTHS)
    accuracy = alt.Axis(format="%", title="accuracy" if leftmost else None, values=_FIFTHS)
    y = alt.Y("accuracy:Q", scale=unit, axis=accuracy)
    base = alt.Chart(width=_SIDE, height=_SIDE).encode(tooltip=_tooltip())
    bars = base.encode(x=alt.X("from:Q", scale=unit, axis=hidden), x2="to", y=y)
    return alt.layer(
        bars.mark_rect(stroke="white").encode(y2=alt.datum(0), color=alt.datum(_ACCURACY)),
        # Where accuracy is the larger, the gap lies on the bar: both shall be seen.
        bars.mark_rect(stroke="white", opacity=0.85).encode(y2="confidence", color=alt.datum(_GAP)),
        bars.mark_rule(stroke=_INK, strokeWidth=2.5),
        base.mark_rule(stroke=_INK, strokeWidth=1.5).encode(
            x="middle:Q", y="low:Q", y2="high", strokeDash=alt.datum(_BAND)
        ),
        alt.Chart(alt.InlineData(values=[{}]))
        .mark_rule(stroke=_INK, strokeWidth=1.5)
        .encode(
            x=alt.datum(0),
            x2=alt.datum(1),
            y=alt.datum(0),
            y2=alt.datum(1),
            strokeDash=alt.datum(_DIAGONAL),
        ),
    )


def _histogram(most: float, leftmost: bool) -> alt.Chart:
    """Return bars of the share of rows by confidence, up to the same height in every panel."""
    import altair as alt

    confidence = alt.Axis(format="%", title="confidence", values=_FIFTHS, labelFlush=False)
    share = alt.Axis(format="%", title="rows" if leftmost else None, tickCount=3)
    bars: alt.Chart = (
        alt.Chart(width=_SIDE, height=_HISTOGRAM_HEIGHT)
        .mark_rect(color=_GREY)
        .encode(
            x=alt.X("from:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=confidence),
            x2="to",
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, most], nice=True), axis=share),
            y2=alt.datum(0),
            tooltip=_tooltip(),
        )
    )
    return bars


def _tooltip() -> list[alt.Tooltip]:
    import altair as alt

    percentages = {
        "from": "confidence over",
        "to": "up to",
        "accuracy": "accuracy",
        "low": "interval from",
        "high": "to",
        "confidence": "mean confidence",
    }
    shares = [alt.Tooltip(f"{k}:Q", format=".2%", title=t) for k, t in percentages.items()]
    return [alt.Tooltip("rows:Q", format=",", title="rows"), *shares]
