"""Risk-coverage curve: the error rate of the most confident rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from recalib.metrics import Predictions
from recalib.metrics.aurc import RiskCoverageArea
from recalib.metrics.equal_mass import sort_by_confidence
from recalib.metrics.mean_metrics import wilson
from recalib.reporting.plots.style import (
    FIFTHS,
    LEVEL,
    PALETTE,
    apply_style,
    check_series,
    colours,
    inline,
    percent,
    records,
    share_tooltips,
    title,
)

_WIDTH, _HEIGHT = 420, 300
_POINTS = 200
_BEST = "best order of the same errors"


def risk_coverage(
    series: Mapping[str, Predictions], *, width: int = _WIDTH
) -> alt.LayerChart | alt.FacetChart:
    """Return the error rate of the most confident rows against their share of all rows.

    The legend shows the area under each curve (AURC). Rows of equal confidence count with their
    mean accuracy, as in `aurc`. The grey dashed line is the best possible order of the same
    errors: all are among the least confident rows. Bands are pointwise: Wilson's 95% interval of
    the error rate for that number of rows.

    Parameters
    ----------
    series: one to eight, by their labels.
    width: of the axes, in pixels.

    Raises
    ------
    InputError: no series or more than eight, or one without rows.
    """
    check_series(series, most=len(PALETTE))
    curves: list[dict[str, Any]] = []
    best, labels = [], []
    for name, predictions in series.items():
        area = RiskCoverageArea().measure(predictions).value
        label = f"{name}: AURC {area:.2%}"
        labels.append(label)
        curves += [{"series": label, **row} for row in _points(_errors_by_confidence(predictions))]
        best.append(1 - float(predictions.correct.mean()))
    counts = {len(predictions) for predictions in series.values()}
    n = "n = " + ", ".join(f"{count:,}" for count in sorted(counts))
    heading = title(
        "Errors among the most confident rows",
        [f"share of errors if only the most confident rows are kept, {LEVEL:.0%} bands", n],
        width,
    )
    # The bands of the few most confident rows are wide and may exceed the plot.
    max_risk = max(max(row["risk"], row["high"] * (row["coverage"] == 1)) for row in curves)
    highest = alt.Scale(domain=[0, min(max_risk * 1.05, 1.0)], nice=False)
    axes, colour = _axes(), colours(labels, "color", _BEST)
    lines = {**axes, "color": colour, "strokeDash": colours(labels, "strokeDash", _BEST)}
    data = alt.Chart(inline(curves))
    chart: alt.LayerChart | alt.FacetChart = alt.layer(
        data.mark_area(opacity=0.2, clip=True).encode(
            x=axes["x"], y=alt.Y("low:Q", scale=highest), y2="high", color=colour
        ),
        alt.Chart(inline(_oracles(best)))
        .mark_line(strokeWidth=1.5)
        .encode(**lines, detail="best:N"),
        data.mark_line(strokeWidth=2.5).encode(**lines, tooltip=_tooltip()),
    ).properties(width=width, height=_HEIGHT, title=heading)
    return apply_style(chart, legend_columns=2)


def _errors_by_confidence(predictions: Predictions) -> NDArray[np.float64]:
    """Return the expected error of each row, most confident first."""
    return 1 - sort_by_confidence(predictions)[1][::-1]


def _points(errors: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return risk at 200 coverages; each row is spread evenly over its 1/N of coverage.

    The band is computed for at least one row.
    """
    coverage = np.arange(1, _POINTS + 1) / _POINTS
    summed = np.concatenate([[0.0], np.cumsum(errors)]) / len(errors)
    risk = np.interp(coverage, np.arange(len(summed)) / len(errors), summed) / coverage
    accepted = np.maximum(coverage * len(errors), 1.0)
    low, high = wilson(np.clip(risk, 0, 1) * accepted, accepted, LEVEL)
    return records({"coverage": coverage, "risk": risk, "low": low, "high": high})


def _best_points(share: float) -> list[dict[str, float]]:
    """Return risk at 200 coverages if all errors come last."""
    coverage = np.arange(1, _POINTS + 1) / _POINTS
    risk = np.maximum(coverage - (1 - share), 0) / coverage
    return records({"coverage": coverage, "risk": risk})


def _axes() -> dict[str, Any]:
    return {
        "x": alt.X(
            "coverage:Q",
            scale=alt.Scale(domain=[0, 1], nice=False),
            axis=percent("coverage: share of rows kept, most confident first", FIFTHS),
        ),
        "y": alt.Y("risk:Q", axis=percent("risk: errors among them")),
    }


def _tooltip() -> list[alt.Tooltip | str]:
    shares = (alt.Tooltip(f"{k}:Q", format=".2%") for k in ("coverage", "risk"))
    return ["series:N", *shares, *share_tooltips({"low": "band from", "high": "to"})]


def _oracles(shares: list[float]) -> list[dict[str, Any]]:
    """Return the points of the best order, for each different share of errors."""
    return [
        {"series": _BEST, "best": f"{share:.9f}", **row}
        for share in sorted(set(shares))
        for row in _best_points(share)
    ]
