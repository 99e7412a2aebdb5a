"""Members of families: metrics, losses and objectives, and the data and networks of recipes.

The build of the site writes them from the code, at the end of a page. `_APPENDICES` of `conf.py`
lists them.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from docs.reference_tables import escape, table
from recalib.losses import LOSSES, SECONDARY
from recalib.metrics import METRICS, Metric, StreamingMetric
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES
from training.data import SOURCES, DataSpec
from training.models import MODELS, _options

_FIELD = re.compile(r"^(\w+): (.*(?:\n    .*)*)", re.MULTILINE)


def metrics() -> str:
    """Return the table of all metrics, and the docstring of each."""
    rng = np.random.default_rng(0)
    estimates = {}
    for classes in (2, 6):  # every metric is defined for one of them
        p, y = rng.dirichlet(np.full(classes, 0.1), 60), rng.integers(0, classes, 60)
        names = [name for name in METRICS if METRICS[name].is_defined_for(classes)]
        estimates |= evaluate(y, probabilities=p, metrics=names, level=0.95)
    rows = [
        [_link(name), metric.summary, _range(metric), _yes(estimates[name].low is not None),
         _yes(estimates[name].floor is not None), _merging(metric)]
        for name, metric in METRICS.items()
    ]  # fmt: skip
    head = ["metric", "what it measures", "range", "interval", "floor", "merges"]
    return "## Every metric\n\n" + table(head, rows) + _entries(METRICS)


def losses() -> str:
    """Return the table of all losses, and the docstring of each."""
    rows = [
        [_link(name), loss.summary, "secondary" if name in SECONDARY else "primary", loss.cost]
        for name, loss in LOSSES.items()
    ]
    text = "## Every loss\n\nN rows, K classes, M bins.\n\n"
    return text + table(["loss", "what it is", "kind", "cost of a step"], rows) + _entries(LOSSES)


def objectives() -> str:
    """Return the docstring of each objective."""
    return "## Every objective\n" + _entries(OBJECTIVES)


def _entries(family: Mapping[str, type]) -> str:
    """Return a section for each member, with its docstring."""
    return "".join(f"\n### `{name}`\n\n{_text(member)}\n" for name, member in family.items())


def _text(member: type) -> str:
    """Return a docstring as Markdown; what is in code style, or indented, stays."""
    parts = re.split(r"(`[^`]*`|^    .*$)", inspect.cleandoc(member.__doc__ or ""), flags=re.M)
    return "".join(part if index % 2 else escape(part) for index, part in enumerate(parts))


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _range(metric: type[Metric]) -> str:
    """Return what the docstring states: every metric has a range."""
    if found := re.search(r"range\s+([\[(][^\])]*[\])])", str(metric.__doc__)):
        return found[1]
    raise ValueError(f"the docstring of {metric.name} needs its range")


def _merging(metric: type[Metric]) -> str:
    """Return the column *merges*: a state with an error bound rounds confidences to cells."""
    if not issubclass(metric, StreamingMetric):
        return "no"
    return "yes" if metric.error_bound is StreamingMetric.error_bound else "cells"


def training_data() -> str:
    """Return the tables of `[data]`, of sources and of networks."""
    meanings = dict(_FIELD.findall(inspect.cleandoc(DataSpec.__doc__ or "")))
    rows = [
        [f"`{field.name}`", _default(field), meanings[field.name]]
        for field in msgspec.structs.fields(DataSpec)
    ]
    text = "## Fields of `[data]`\n\n" + table(["field", "default", "meaning"], rows)
    rows = [
        [f"`{name}`", _code(field.name for field in fields(kind)), _first_sentence(kind)]  # type: ignore[arg-type]
        for name, kind in SOURCES.items()
    ]
    text += "\n## Sources\n\n" + table(["source", "options", "data"], rows) + _entries(SOURCES)
    rows = [[f"`{name}`", _code(_options(make)), _network(make)] for name, make in MODELS.items()]
    return text + "\n## Every network\n\n" + table(["name", "options", "description"], rows)


def _default(field: Any) -> str:
    if field.default is msgspec.NODEFAULT:
        return "required" if field.default_factory is msgspec.NODEFAULT else "none"
    return "none" if field.default is None else f"`{str(field.default).lower()}`"


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first_sentence(kind: Any) -> str:
    return escape(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0])


def _network(make: Any) -> str:
    """Return what a network is; of one with given arguments, these too."""
    if not isinstance(make, functools.partial):
        return _first_sentence(make)
    given = ", ".join(f"{name} {value}" for name, value in make.keywords.items())
    return f"{_first_sentence(make.func)} Here: {given}."
