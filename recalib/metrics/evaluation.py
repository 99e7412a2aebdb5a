"""The result of an evaluation: metrics by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from recalib.core.html_table import html_table
from recalib.metrics.base import Estimate
from recalib.metrics.headline import headline_metrics

V = TypeVar("V", float, Estimate)

#: Metrics that a short text has.
_MAX_METRICS = 5


class Evaluation(dict[str, V]):
    """A dictionary of metrics by name, numbers or estimates.

    A notebook and `print` show a table: fractions in percent, intervals, and the noise floor, which
    is the mean of the metric for a perfectly calibrated classifier.
    """

    #: Of independent labels, the evaluation of each by its name; else empty.
    labels: Mapping[str, Evaluation[Any]] = MappingProxyType({})
    #: Of rows with segments, the evaluation of each by `column=value`; else empty.
    segments: Mapping[str, Evaluation[Any]] = MappingProxyType({})
    #: The number of rows of a segment; else 0.
    rows: int = 0

    def __repr__(self) -> str:
        names = list(dict.fromkeys([*headline_metrics(self), *self]))[:_MAX_METRICS]
        texts = [f"{name} {format_metric(name, _estimate(self[name]).value)}" for name in names]
        more = f", ... {len(self)} metrics" if len(self) > _MAX_METRICS else ""
        return f"<Evaluation {', '.join(texts)}{more}>"

    def __str__(self) -> str:
        header, rows = self._table()
        lines: list[list[str]] = [header]
        lines.extend(rows)
        widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        return html_table("Evaluation", *self._table())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows; columns that are empty are left out."""
        header = ["metric", "value", "interval", "noise floor"]
        rows = [_row(name, _estimate(value)) for name, value in self.items()]
        filled = [k for k in range(len(header)) if k < 2 or any(row[k] for row in rows)]
        return [header[k] for k in filled], [[row[k] for k in filled] for row in rows]


def select_parts(
    estimates: Mapping[str, Estimate], intervals: bool, floors: bool | None
) -> Evaluation[Any]:
    """Return numbers, or estimates with intervals and floors as `recalib.evaluate` selects them."""
    omitted: dict[str, Any] = {} if intervals else {"low": None, "high": None}
    if floors is False:
        omitted |= {"floor": None, "floor_high": None}
    selected: Evaluation[Any] = Evaluation(
        {
            name: replace(item, **omitted) if intervals or floors else item.value
            for name, item in estimates.items()
        }
    )
    if isinstance(estimates, Evaluation):
        parts = estimates.segments.items()
        selected.segments = {name: select_parts(part, intervals, floors) for name, part in parts}
        selected.rows = estimates.rows
    return selected


def _estimate(value: float | Estimate) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value)


def _row(name: str, estimate: Estimate) -> list[str]:
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f"{format_metric(name, estimate.low)} to {format_metric(name, estimate.high)}"
    floor = "" if estimate.floor is None else format_metric(name, estimate.floor)
    return [name, format_metric(name, estimate.value), interval, floor]


def format_metric(name: str, value: float) -> str:
    """Return a value as text: a fraction in percent, another number with four digits."""
    from recalib.metrics import METRICS

    is_fraction = name in METRICS and METRICS[name].unit == "fraction"
    return f"{value:.2%}" if is_fraction else f"{value:.4f}"


def named_values(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return estimates as numbers: `ece`, and the ends of its interval, `ece_low`, `ece_high`."""
    values: dict[str, float] = {}
    for name, estimate in estimates.items():
        ends = {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        values |= {key: float(value) for key, value in ends.items() if value is not None}
    return values
