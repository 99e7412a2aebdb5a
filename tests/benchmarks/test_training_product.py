"""The product of primary and secondary losses: its cells, selections and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import product, product_tables, running
from recalib.recipe import ModelPart
from training.data import Split, Splits
from training.data.arrays import Array
from training.engine.objective import TrainingObjective
from training.engine.search import tuned_options
from training.engine.trials import Candidate


def test_product_has_the_cells_of_the_paper() -> None:
    """42 cells, and the interleaved ones; each has the options that its losses have."""
    everything = [(data, cell) for data in product.DATA.values() for cell in product.cells(data)]
    assert sum(not cell.interleaved for _, cell in everything) == 42
    cifar10 = list(product.cells(product.DATA["cifar10"]))
    paper = set(product_tables.PAPER)
    assert paper == {cell.name for cell in cifar10} - {"NLL + S-AvUC", "NLL + SB-ECE"}
    for data, cell in everything:
        recipe = product.recipe_for(cell, data, 1)
        grid = product.grid_of(cell)
        assert (recipe.interleave.when == "always") == cell.interleaved
        for option, values in tuned_options(grid).items():
            for value in values:  # type: ignore[union-attr]
                TrainingObjective(Candidate.of(recipe, 0, {option: value}).recipe.loss, samples=9)
        assert bool(grid.kappa) == ("AvUC" in cell.secondary)
        assert bool(grid.beta) == bool(cell.secondary)


def test_product_selects_on_validation_rows_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option is tuned with the first seed; the second seed has the selected values."""
    monkeypatch.setattr(product, "GRID", {**product.GRID, "beta": (0.1, 1.0), "kappa": (0.5,)})
    monkeypatch.setattr(product, "SECONDARY", {"MMCE": "mmce"})
    monkeypatch.setattr(product, "INTERLEAVED", ())
    rng = np.random.default_rng(0)

    def split(rows: int) -> Split:
        inputs = rng.normal(size=(rows, 5)).astype(np.float32)
        return Split.with_all_rows(Array(inputs), inputs[:, :3].argmax(axis=1))

    splits = Splits(split(60), split(45), split(45), 3, {"features": 5})
    data = product.Data("toy", lambda *_: (splits, None), ModelPart(name="linear"), ("NLL",), 1, 20)
    monkeypatch.setitem(product.DATA, "digits", data)
    (tmp_path / "cifar10-train.parquet").touch()
    monkeypatch.setenv("RECALIB_DATA", str(tmp_path))
    arguments = f"--data digits --seeds 1 2 --cache {tmp_path / 'runs'} --output {tmp_path / 't'}"
    product.main(arguments.split())
    document = json.loads((tmp_path / "t.json").read_text())
    assert [cell["secondary"] for cell in document] == ["", "MMCE"]
    plain, mmce = (cell["runs"] for cell in document)
    assert set(plain[0]["options"]) == {"weight_decay"}
    assert mmce[0]["options"] == mmce[1]["options"]
    assert [run["seed"] for run in mmce] == [1, 2]
    # Without a secondary loss two values of the decay; with MMCE two of β and one more decay.
    assert len(list((tmp_path / "runs" / "digits").glob("*.npz"))) == 2 + 1 + 3 + 1
    monkeypatch.setattr(running, "_trained", None)
    product.main(arguments.split())
    assert json.loads((tmp_path / "t.json").read_text()) == document
    text = (tmp_path / "t.md").read_text()
    assert "| 000, figure 1 | NLL + MMCE below NLL, ECE | 2 |" in text


def test_tables_of_the_product() -> None:
    """Effects by hand; the best cell is within a point of the best accuracy without secondary."""

    def runs(errors: tuple[float, ...], accuracy: float, ts: float) -> list[dict[str, Any]]:
        return [
            {
                "seed": seed, "classes": 10, "options": {"weight_decay": 0.005},
                "history": [{"train": {"ece": 0.01}}],
                "measured": {
                    name: {"test": {"accuracy": accuracy, "ece": e, "ece_l2_equal_mass": e}}
                    for name, e in (("", error), ("TS", ts), ("TS-SB-ECE", ts - 0.01))
                },
            }
            for seed, error in enumerate(errors)
        ]  # fmt: skip

    cell = product_tables.Cell
    stories = {
        cell("CIFAR-10", "NLL", ""): runs((0.10, 0.12), 0.90, 0.05),
        cell("CIFAR-10", "NLL", "MMCE"): runs((0.06, 0.08), 0.895, 0.04),
        cell("CIFAR-10", "focal", "MMCE"): runs((0.01, 0.02), 0.88, 0.04),
        cell("CIFAR-10", "NLL", "SB-ECE", interleaved=True): runs((0.03, 0.05), 0.9, 0.04),
        cell("CIFAR-10", "MSE", ""): [{"seed": 0, "diverged": "NaN"}],
    }
    text = product_tables.markdown(stories, [])
    lines = text.splitlines()
    assert (
        "| NLL | 2 | λ 0.005 | 90.0 ± 0.0 | 11.0 ± 1.0 | 5.0 ± 0.0 | 4.0 ± 0.0 | 5.59, 1.95, 1.16 |"
        in lines
    )
    assert "| NLL | 11.00% | 1.00% | 11.0 |" in lines
    assert "| MMCE | NLL + MMCE | 7.0 ± 1.0 | 4.0 ± 0.0 |" in lines
    assert "| SB-ECE | NLL + SB-ECE, interleaved | 4.0 ± 1.0 | 4.0 ± 0.0 |" in lines
    assert "The mean ECE after TS-SB-ECE is below that after TS in 3 of 3 cells." in lines
    # (0.11 − 0.07) / s with s² = 2 · 0.0002 / 2.
    assert any(line.startswith(f"| MMCE | 1 | {0.04 / 0.0002**0.5:+.1f} |") for line in lines)
    assert "| MSE" not in text
    # The paper has MMCE above focal loss alone; on other data sets only the general claim.
    texts = []
    for name in ("CIFAR-10", "digits"):
        pair = {cell(name, "focal", ""): [], cell(name, "focal", "MMCE"): []}
        texts.append([claim.text for claim in product_tables.claims(pair)])
    assert texts[0][:2] == [
        "focal below focal + MMCE, ECE", "focal after TS below focal + MMCE after TS, ECE",
    ]  # fmt: skip
    assert texts[1][0] == "focal + MMCE below focal, ECE"
    assert texts[0][2] == texts[1][2] == "focal after TS-SB-ECE below focal after TS, ECE"
