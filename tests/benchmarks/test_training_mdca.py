"""The experiment on MDCA: its settings, its table, and reuse of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import mdca, running
from benchmarks.training.running import Budget
from training.data import Split, Splits
from training.data.arrays import Array


def _splits() -> Splits:
    def split(rows: int, seed: int) -> Split:
        rng = np.random.default_rng(seed)
        inputs = Array(rng.standard_normal((rows, 6)).astype(np.float32))
        return Split.with_all_rows(inputs, rng.integers(0, 10, rows))

    return Splits(split(24, 0), split(30, 1), split(30, 2), 10, {"features": 6})


def test_each_claim_is_about_rows_of_the_table() -> None:
    names = {setting.name(loss) for setting in mdca.SETTINGS for loss in setting.losses}
    sides = [side.objective for claim in mdca.claims() for side in (claim.low, claim.high)]
    assert set(sides) == names
    # In each setting both weights, and each shorter training; before and after temperature scaling.
    shorter = sum(setting.losses == ("CE",) for setting in mdca.SETTINGS)
    assert len(sides) == 2 * 2 * (3 * 2 + shorter)


def test_settings_are_trained_and_runs_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training rows are all measured; the second command trains nothing."""
    settings = (mdca.Setting(1, 12, ("CE", "CE + MDCA")), mdca.Setting(2, 12, ("CE",)))
    monkeypatch.setattr(mdca, "SETTINGS", settings)
    monkeypatch.setattr(mdca, "prepare", lambda *_: _splits())
    budget = Budget(model="linear", width=0, shifted=0, device="cpu")
    monkeypatch.setattr(mdca, "_BUDGET", budget)
    (tmp_path / "cifar10-train.parquet").touch()
    monkeypatch.setenv("RECALIB_DATA", str(tmp_path))
    output = tmp_path / "mdca.md"
    arguments = f"--seeds 1 2 --cache {tmp_path / 'runs'} --output {output}".split()
    mdca.main(arguments)
    runs = [np.load(path) for path in (tmp_path / "runs").iterdir()]
    assert len(runs) == 6
    text = output.read_text()
    for name in ("CE, 1 epochs", "CE + MDCA, 1 epochs", "CE, 2 epochs"):
        assert f"| {name}, batches of 12 | 2 | " in text
    assert text.count("| 001, table 3 |") == text.count("| equal fit |") == 2
    monkeypatch.setattr(running, "_trained", None)
    mdca.main(arguments)
    assert output.read_text() == text


def test_runs_of_a_setting_differ_only_by_the_loss() -> None:
    first = mdca.recipe_of(mdca.SETTINGS[0], "CE", 1)
    second = mdca.recipe_of(mdca.SETTINGS[0], "CE + MDCA", 1)
    assert second == first.model_copy(update={"loss": second.loss})
    assert (second.loss.secondary, second.loss.beta) == ("mdca", 1.0)
    larger = mdca.recipe_of(mdca.SETTINGS[1], "CE", 1)
    assert larger == first.model_copy(update={"batch_size": larger.batch_size})
    assert replace(mdca.SETTINGS[0], batch=larger.batch_size) == mdca.SETTINGS[1]
