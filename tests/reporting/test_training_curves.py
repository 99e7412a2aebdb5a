"""The picture of a run: every number of its records is in it, and none that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from recalib.errors import InputError
from recalib.reporting.plots import training_curves


def record(epoch: int, wrong: float | None) -> dict[str, Any]:
    split = {
        "nll": 1.0 / epoch, "ece": 0.1 / epoch, "accuracy": 1 - 0.1 / epoch, "entropy": 2.0 / epoch,
        "nll_right": 0.5 / epoch, "nll_wrong": wrong,
    }  # fmt: skip
    splits = {"train": split, "validation": split, "test": split}
    return {**splits, "weight_norm": 3.0 * epoch, "head_norm": 1.0 * epoch}


def values_of(chart: dict[str, Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a panel's points, in the panel or at the top of the specification."""
    rows: list[dict[str, Any]] = data.get("values") or chart["datasets"][data["name"]]
    return rows


def test_curves_show_all_records() -> None:
    """Six panels, points in order; a mean over no rows has no point."""
    chart = training_curves([record(1, 2.5), record(2, None)], "run").to_dict()
    panels = [panel for row in chart["vconcat"] for panel in row["hconcat"]]
    values = {
        panel["encoding"]["y"]["axis"]["title"]: [
            (v["series"], v["epoch"], v["value"]) for v in values_of(chart, panel["data"])
        ]
        for panel in panels
    }
    assert values["NLL of test rows"] == [("right", 1, 0.5), ("right", 2, 0.25), ("wrong", 1, 2.5)]
    assert values["norm of weights"] == [
        ("all", 1, 3.0), ("all", 2, 6.0), ("last layer", 1, 1.0), ("last layer", 2, 2.0),
    ]  # fmt: skip
    assert len(values["NLL"]) == len(values["ECE"]) == len(values["entropy, nats"]) == 6
    assert chart["title"]["text"] == "run"
    # Each epoch has one label.
    assert [panel["encoding"]["x"]["axis"]["values"] for panel in panels] == [[1, 2]] * 6


@pytest.mark.parametrize("count", [0, 5001])
def test_invalid_number_of_records_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=r"^records: found"):
        training_curves([record(1, None)] * count)
