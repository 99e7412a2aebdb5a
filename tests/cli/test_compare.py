"""`recalib compare`: metrics of pairs, and the recommendation."""

from __future__ import annotations

import json
import re

import pytest

import recalib
from recalib import metrics
from recalib.maps import MAPS
from recalib.metrics.evaluate import evaluate
from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz
from tests.metrics.rows import defined

#: `s99_accuracy` is absent without a confidence above 0.99.
METRICS = [
    name
    for name in defined(LOGITS.shape[1])
    if name != "s99_accuracy" and not metrics.METRICS[name].on_request
]


def test_compare(cli: Cli) -> None:
    """A row a pair, measured on the second file."""
    cli.write("test.npz", write_npz(LOGITS[:50], LABELS[:50]))
    command = ["compare", "val.npz", "test.npz", "--json", "--objectives", "nll"]
    rows = cli(*command, "--maps", "identity, temperature").json
    assert [(row["map"], row["objective"]) for row in rows] == [
        ("identity", "nll"),
        ("temperature", "nll"),
    ]
    for row in rows:
        assert [name for name in row["metrics"] if name != "s99_accuracy"] == METRICS
        assert row["fit_seconds"] >= 0
    before = evaluate(LABELS[:50], logits=LOGITS[:50])
    assert rows[0]["metrics"]["nll"] == pytest.approx(before["nll"].value)
    assert rows[1]["metrics"]["nll"] < rows[0]["metrics"]["nll"]


@pytest.mark.slow
def test_incompatible_pairs_are_left_out(cli: Cli) -> None:
    """All maps are the default; an incompatible pair given by name causes a warning."""
    compare = ["compare", "val.npz", "val.npz", "--json"]
    by_grid = cli(*compare, "--objectives", "ece_grid").json
    assert {"temperature"} <= {row["map"] for row in by_grid} < set(MAPS)
    result = cli(*compare, "--objectives", "ece_grid", "--maps", "identity,temperature")
    assert [row["map"] for row in json.loads(result.out)] == ["temperature"]
    assert result.err.startswith("warning: left out: objective: found 'ece_grid'")
    single = cli(*compare, "--objectives", "ece_grid", "--maps", "identity")
    assert (single.status, single.err[:37]) == (2, "error: objective: found 'ece_grid' fo")


def test_test_file_does_not_influence_the_recommendation(cli: Cli) -> None:
    cli.write("test.npz", write_npz(LOGITS[:50], LABELS[:50]))
    compare = ["compare", "val.npz", "--maps", "identity,temperature,vector", "--json"]
    rows = cli(*compare[:2], "test.npz", *compare[2:]).json
    output = cli(*compare[:2], "val.npz", *compare[2:]).json
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in output]
    assert sum(row["chosen"] for row in rows) == 1
    by_map = {row["map"]: row for row in rows}
    assert by_map["vector"]["verdict"].startswith("NLL higher by ")
    assert by_map["temperature"]["cross_validated"]["nll_difference"]["value"] == 0
    assert by_map["identity"]["cross_validated"]["nll"]["low"] > 0
    text = cli(*compare[:2], "val.npz", *compare[2:-1]).out
    (chosen,) = (name for name, row in by_map.items() if row["chosen"])
    assert f"recommended: {chosen}: " in text


@pytest.mark.parametrize("rows", [1, 4])
def test_few_rows_are_not_cross_validated(cli: Cli, rows: int) -> None:
    """Too few rows to cross-validate: there is a message and no scores."""
    cli.write("few.npz", write_npz(LOGITS[:rows], LABELS[:rows]))
    output = cli("compare", "few.npz", "val.npz", "--maps", "temperature", "--json").json
    assert output[0]["cross_validated"] is None
    assert output[0]["verdict"] == f"fewer than 5 rows: {rows}"
    text = cli("compare", "few.npz", "val.npz", "--maps", "temperature").out
    assert f"recommended: identity: fewer than 5 rows: {rows}" in text


def test_metrics_of_the_table_are_chosen(cli: Cli) -> None:
    compare = ("compare", "val.npz", "val.npz", "--maps", "temperature,vector")
    chosen = cli(*compare, "--metrics", "nll,aurc", "--json").json
    assert [[*entry["metrics"]] for entry in chosen] == [["nll", "aurc"]] * 2
    table = cli(*compare, "--metrics", "aurc,nll").out.partition("cross-validated")[0]
    assert "aurc" in table
    assert "nll" in table
    assert "accuracy" not in table
    assert "s99" in cli(*compare, "--all").out
    short = cli(*compare).out.partition("cross-validated")[0]
    assert all(name in short for name in ("accuracy", "nll", "brier", "ece"))
    assert "aurc" not in short
    assert "floor" in short
    floor = recalib.evaluate(LABELS, logits=LOGITS, floors=True)["ece"].floor
    identity = cli("compare", "val.npz", "val.npz", "--maps", "identity").out
    (row,) = re.findall(
        r"^ *identity +nll +\d.*$", identity.partition("cross-val")[0], re.MULTILINE
    )
    assert f" {100 * floor:.2f} " in row
    result = cli(*compare, "--metrics", "nlll")
    assert "metrics: found 'nlll'; accepted: did you mean nll?" in result.err
