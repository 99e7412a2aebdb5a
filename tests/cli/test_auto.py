"""`fit --map auto` and what `compare` recommends, for people and for machines."""

from __future__ import annotations

import pytest

from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz


def test_fit_names_its_choice_and_why(cli: Cli) -> None:
    fitted = cli("fit", "val.npz", "-o", "a.calib", "--map", "auto", "--json").json
    card, choice = fitted["card"], fitted["card"]["choice"]
    assert card["map"] == choice["map"]
    assert choice["reason"].startswith(f"{card['map']}: ")
    assert choice["folds"] == 5
    chosen = [one for one in choice["candidates"] if one["chosen"]]
    assert [one["map"] for one in chosen] == [card["map"]]
    assert chosen[0]["nll"]["low"] < chosen[0]["nll"]["value"] < chosen[0]["nll"]["high"]
    said = cli("fit", "val.npz", "-o", "b.calib", "--map", "auto").out
    assert choice["reason"] in said
    assert "cross-validated on 300 rows in 5 folds" in said
    assert f"{card['map']} by nll on 300 rows" in said


def test_fit_takes_the_policy_s_option(cli: Cli) -> None:
    fit = ["fit", "val.npz", "-o", "a.calib", "--map", "auto", "--json"]
    choice = cli(*fit, "--option", "preserve_accuracy=false").json["card"]["choice"]
    assert choice["preserve_accuracy"] is False
    assert "structured_vector" in {one["map"] for one in choice["candidates"]}
    wrong = cli(*fit, "--option", "preserve_acuracy=false")
    assert wrong.status == 2
    assert wrong.err.startswith("error: options.preserve_acuracy: found an unknown option")


def test_compare_recommends_without_the_test_file(cli: Cli) -> None:
    cli.write("test.npz", write_npz(LOGITS[:50], LABELS[:50]))
    compare = ["compare", "val.npz", "--maps", "identity,temperature,vector", "--json"]
    rows = cli(*compare[:2], "test.npz", *compare[2:]).json
    others = cli(*compare[:2], "val.npz", *compare[2:]).json
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in others]
    assert sum(row["chosen"] for row in rows) == 1
    by_map = {row["map"]: row for row in rows}
    assert by_map["vector"]["verdict"] == "it may change predictions"
    assert by_map["temperature"]["cross_validated"]["nll_difference"]["value"] == 0
    assert by_map["identity"]["cross_validated"]["nll"]["low"] > 0
    said = cli(*compare[:2], "val.npz", *compare[2:-1]).out
    (chosen,) = (name for name, row in by_map.items() if row["chosen"])
    assert f"recommended: {chosen}: " in said


@pytest.mark.parametrize("rows", [1, 4])
def test_compare_of_very_few_rows(cli: Cli, rows: int) -> None:
    """Nothing to cross-validate: said, and no scores."""
    cli.write("few.npz", write_npz(LOGITS[:rows], LABELS[:rows]))
    found = cli("compare", "few.npz", "val.npz", "--maps", "temperature", "--json").json
    assert found[0]["cross_validated"] is None
    assert found[0]["verdict"] == f"fewer rows than 5 folds: {rows}"
    said = cli("compare", "few.npz", "val.npz", "--maps", "temperature").out
    assert f"recommended: identity: fewer rows than 5 folds: {rows}" in said
