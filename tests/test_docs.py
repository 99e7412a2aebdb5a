"""What the documents list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from recalib.maps import MAPS
from recalib.metrics import METRICS, StreamingMetric
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES

_METRICS_DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
_MAPS_DOCUMENT = Path(__file__).parents[1] / "docs" / "maps.md"


def rows_of(heading: str) -> dict[str, str]:
    """Return the last cell of each row of the table under `heading`, by name."""
    section = _MAPS_DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", section, flags=re.MULTILINE)
    return dict(cells)


def test_every_map_is_listed_with_whether_it_keeps_predictions() -> None:
    listed = rows_of("Maps")
    assert set(listed) == set(MAPS)
    for name, keeps in listed.items():
        if keeps == "`target=top_label`":
            assert MAPS[name](target="top_label").preserves_accuracy  # type: ignore[call-arg]
            assert not MAPS[name](target="one_vs_rest").preserves_accuracy  # type: ignore[call-arg]
        else:
            assert MAPS[name]().preserves_accuracy == (keeps == "yes")


def test_every_objective_is_listed() -> None:
    assert set(rows_of("Objectives")) == set(OBJECTIVES)


def test_every_metric_is_listed_with_what_it_can() -> None:
    """In the order of METRICS: summary, range, interval, floor, and whether states add up."""
    text = _METRICS_DOCUMENT.read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(METRICS)
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 60), rng.integers(0, 3, 60)
    found = evaluate(y, probabilities=p, metrics=METRICS, level=0.95)
    says = {True: "yes", False: "no"}
    for name, row in rows:
        metric = METRICS[name](15)
        summary, source, values, *can = row.split(" | ")
        assert summary == metric.summary
        assert source
        assert f"range {values}" in " ".join(str(type(metric).__doc__).split()), name
        one = found[name]
        assert can == [
            says[one.low is not None],
            says[one.floor is not None],
            says[isinstance(metric, StreamingMetric)],
        ], name


def test_metrics_that_are_measured_by_name_only_are_named() -> None:
    paragraph = next(
        one for one in _METRICS_DOCUMENT.read_text().split("\n\n") if "only when asked for" in one
    )
    on_request = [name for name, make in METRICS.items() if make(15).on_request]
    assert re.findall(r"`(\w+)`", paragraph) == on_request
