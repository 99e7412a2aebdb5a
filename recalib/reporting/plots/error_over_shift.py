"""Calibration error of several methods against the severity of a shift."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from recalib.errors import InputError
from recalib.reporting.plots.style import (
    LEVEL,
    PALETTE,
    apply_style,
    colours,
    inline,
    percent,
    share_tooltips,
    title,
)

_WIDTH, _HEIGHT = 460, 300
_MOST_SEVERITIES = 50
#: Approximate width of a letter of a label, in pixels.
_LETTER = 7
#: Distance of the methods of one severity, as a fraction of the distance to the next severity.
_SPREAD = 0.3


class ShiftRow(NamedTuple):
    """One error at one severity of shift; a plain tuple of the five fields is accepted too.

    `severity` is a number on the caller's scale, 0 for no shift. `value`, `low` and `high` are in
    [0, 1]; `low` and `high` are None without an interval.
    """

    method: str
    severity: float
    value: float
    low: float | None = None
    high: float | None = None


def error_over_shift(
    rows: Iterable[tuple[str, float, float, float | None, float | None]],
    *,
    n: int | Sequence[int],
    names: Sequence[str] | None = None,
    width: int = _WIDTH,
) -> alt.LayerChart | alt.FacetChart:
    """Return the calibration error of several methods against the severity of a shift.

    Points are values, bars their intervals; the methods of one severity are side by side.

    Parameters
    ----------
    rows: see `ShiftRow`; up to 8 methods and 50 severities, in any order.
    n: number of rows of each error, or the numbers by severity, for the title.
    names: labels of the severities, in order; numbers by default.
    width: of the axes, in pixels.

    Raises
    ------
    InputError: no rows, too many methods or severities, a duplicate pair, values outside [0, 1]
        or not in order, or a wrong number of names.
    """
    checked = _check_rows([ShiftRow(*row) for row in rows])
    methods = list(dict.fromkeys(row.method for row in checked))
    severities = sorted({row.severity for row in checked})
    if names is not None and len(names) != len(severities):
        accepted = f"{len(severities)}, one for each severity"
        raise InputError("names", found=f"{len(names)} names", accepted=accepted)
    step = min(np.diff(severities), default=1.0)
    values = [_mark(row, methods.index(row.method), len(methods), step) for row in checked]
    facts = [
        f"{LEVEL:.0%} intervals" if any(row.low is not None for row in checked) else "no intervals"
    ]
    facts = [f"expected calibration error, {facts[0]}", _row_count_text(n)]
    base = alt.Chart(inline(values)).encode(
        x=alt.X(
            "at:Q",
            scale=alt.Scale(
                domain=[severities[0] - step / 2, severities[-1] + step / 2], nice=False
            ),
            axis=_axis(severities, names, width),
        ),
        color=colours(methods),
        tooltip=_tooltip(),
    )
    y = alt.Y("value:Q", axis=percent("ECE"), scale=alt.Scale(zero=True))
    dashes = colours(methods, "strokeDash").legend(None)
    chart: alt.LayerChart | alt.FacetChart = alt.layer(
        base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dashes),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high"),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            y=y, shape=colours(methods, "shape")
        ),
    ).properties(width=width, height=_HEIGHT, title=title("Calibration under shift", facts, width))
    return apply_style(chart, legend_columns=4)


def _row_count_text(n: int | Sequence[int]) -> str:
    counts = [n] if isinstance(n, int) else sorted(n)
    if counts[0] == counts[-1]:
        return f"n = {counts[0]:,} each"
    return f"n = {counts[0]:,} to {counts[-1]:,}"


def _axis(severities: list[float], names: Sequence[str] | None, width: int) -> alt.Axis:
    if names is None:
        return alt.Axis(title="severity of shift", values=severities, grid=False)
    # A Vega expression; its notation for lists of strings and numbers is JSON.
    label = f"{json.dumps(list(names))}[indexof({json.dumps(severities)}, datum.value)]"
    room = width / len(names)
    crowded = max(map(len, names)) * _LETTER > room
    turned: dict[str, Any] = {"labelAngle": -30, "labelAlign": "right"} if crowded else {}
    return alt.Axis(
        title=None, values=severities, grid=False, labelExpr=label, labelLimit=160, **turned
    )


def _mark(row: ShiftRow, number: int, methods: int, step: float) -> dict[str, Any]:
    aside = 0.0 if methods == 1 else _SPREAD * step * (number / (methods - 1) - 0.5)
    return {
        "series": row.method,
        "severity": row.severity,
        "at": row.severity + aside,
        "value": row.value,
        "low": row.low,
        "high": row.high,
    }


def _check_rows(rows: list[ShiftRow]) -> list[ShiftRow]:
    if not rows:
        raise InputError("rows", found="none", accepted="at least one row")
    for number, row in enumerate(rows):
        _check_row(row, f"rows[{number}]")
    pairs = Counter((row.method, row.severity) for row in rows)
    (pair, times), *_ = pairs.most_common(1)
    if times > 1:
        found = f"{pair[0]!r} at severity {pair[1]} {times} times"
        raise InputError("rows", found=found, accepted="each method once at each severity")
    for field, limit in (("method", len(PALETTE)), ("severity", _MOST_SEVERITIES)):
        count = len({getattr(row, field) for row in rows})
        if count > limit:
            raise InputError(
                f"rows.{field}", found=f"{count} different", accepted=f"at most {limit}"
            )
    return rows


def _check_row(row: ShiftRow, where: str) -> None:
    if not math.isfinite(row.severity):
        raise InputError(f"{where}.severity", found=str(row.severity), accepted="a finite number")
    if (row.low is None) != (row.high is None):
        found = f"low {row.low}, high {row.high}"
        raise InputError(where, found=found, accepted="both ends of an interval, or none")
    low = row.value if row.low is None else row.low
    high = row.value if row.high is None else row.high
    if not 0 <= low <= row.value <= high <= 1:
        found = f"value {row.value}, low {row.low}, high {row.high}"
        raise InputError(where, found=found, accepted="0 <= low <= value <= high <= 1")


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="method"),
        alt.Tooltip("severity:Q", title="severity"),
        *share_tooltips({"value": "ECE", "low": "interval from", "high": "to"}),
    ]
