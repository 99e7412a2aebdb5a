"""What pages share: the templates, their filters, and the rows of their tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import numpy as np
from numpy.typing import NDArray

import recalib
from recalib.errors import InputError
from recalib.files import LabelledData, write_atomically
from recalib.metrics import METRICS, Estimate
from recalib.metrics.paired import Change
from recalib.reporting.html_report.changes import VERDICT_WORDS, change_text, interval_text
from recalib.reporting.plots.style import DARK_COLOURS, GAP, series_colours
from recalib.reporting.terminal import is_percentage
from recalib.stats.groups import group_counts


class Page:
    """A page as HTML, which a notebook shows."""

    #: It loads nothing from the network.
    html: str

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the page and of the notebook apart.
        page = escape(self.html)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page atomically.

        Raises
        ------
        InputError: the file name does not end in .html, or the file cannot be written.
        """
        if Path(path).suffix != ".html":
            raise InputError("path", found=str(path), accepted="a name that ends in .html")
        write_atomically(Path(path), self.html.encode())


@dataclass(frozen=True)
class Source:
    """Input from a file, from several files, or from arrays."""

    name: str
    digest: str
    data: LabelledData
    is_file: bool = True
    #: (K,): rows with each label, if `data` is a sample; not for independent labels.
    all_counts: NDArray[np.int64] | None = None
    #: Paths and URLs, if there are several.
    locations: tuple[str, ...] = ()

    @property
    def counts(self) -> NDArray[np.int64]:
        """(K,): rows with each label."""
        if self.all_counts is not None:
            return self.all_counts
        if self.data.labels.ndim == 2:
            return self.data.labels.sum(axis=0)
        return group_counts(self.data.labels, self.data.logits.shape[1])

    @property
    def rows(self) -> int:
        """N, all rows if `data` is a sample."""
        return len(self.data.labels) if self.all_counts is None else int(self.all_counts.sum())


def render(template: str, *, series: int, metrics: Mapping[str, Estimate], **values: Any) -> str:
    """Return a page.

    Parameters
    ----------
    template: the name of its file.
    series: the number of predictions in one picture, 1 or 2.
    metrics: those in the tables; they decide whether a table has a column of noise floors.
    values: what the template needs besides.
    """
    return (
        _environment()
        .get_template(template)
        .render(
            now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            library=recalib.__version__,
            has_floor=any(estimate.floor is not None for estimate in metrics.values()),
            colours=series_colours(series),
            gap=GAP,
            dark_colours=DARK_COLOURS,
            words=VERDICT_WORDS,
            **values,
        )
    )


def describe_source(role: str, source: Source) -> dict[str, Any]:
    counts = source.counts
    return {
        "role": role,
        "name": source.name,
        "digest": source.digest,
        "rows": source.rows,
        "dtype": str(source.data.logits.dtype),
        "seen": int((counts > 0).sum()),
        "least": int(counts.min()),
        "most": int(counts.max()),
    }


def metric_rows(
    before: Mapping[str, Estimate], after: Mapping[str, Estimate], changes: Mapping[str, Change]
) -> list[dict[str, Any]]:
    """Return the rows of a table; a metric for which no row counts is None before or after."""
    return [
        {
            "name": name,
            "summary": METRICS[name].summary,
            "before": before.get(name),
            "after": after.get(name),
            "change": changes.get(name),
            "percent": is_percentage(name),
        }
        for name in METRICS
        if name in before or name in after
    ]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recalib.reporting.html_report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["interval"] = _interval
    environment.filters["estimate"] = _estimate
    environment.filters["number"] = _number
    environment.filters["change"] = lambda row: change_text(row["name"], row["change"])
    environment.filters["change_interval"] = lambda row: interval_text(row["name"], row["change"])
    return environment


def _estimate(estimate: Estimate | None, percent: bool) -> markupsafe.Markup:
    """Return the value with its interval; nothing for None."""
    if estimate is None:
        return markupsafe.Markup("")
    text = markupsafe.Markup("<span>{}</span><small>{}</small>")
    return text.format(_number(estimate.value, percent), _interval(estimate, percent))


def _number(value: float, percent: bool) -> str:
    return f"{value:.2%}" if percent else f"{value:.4f}"


def _interval(estimate: Estimate, percent: bool) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{_number(estimate.low, percent)} to {_number(estimate.high, percent)}"
