"""The Lightning callback logs and writes what `recalib.evaluate` returns, and fits a map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.errors import InputError
from recalib.files import read
from tests.fitting.conftest import draw
from tests.loop_examples import loop_example, run_examples

pytestmark = [
    pytest.mark.slow,  # Lightning is imported and trains
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]

LOGITS, LABELS = draw(96, 3, 2.0)
METRICS = ("accuracy", "nll", "ece")


def train(folder: Path, **options: Any) -> tuple[Any, np.ndarray]:
    """Train two epochs; return the trainer and the logits after the last one."""
    from tests.lightning_training import train

    return train(folder, METRICS, **options)


def lines_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_each_epoch_is_logged_and_written(tmp_path: Path) -> None:
    trainer, logits = train(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [(line.pop("epoch"), line.pop("step")) for line in lines] == [(0, 6), (1, 12)]
    expected = recalib.evaluate(LABELS, logits=logits, metrics=METRICS)
    assert {name: lines[1][name] for name in METRICS} == pytest.approx(expected, rel=1e-12)
    logged = {name: float(trainer.callback_metrics[f"val_{name}"]) for name in lines[1]}
    assert logged == pytest.approx(lines[1], rel=1e-6)
    fitted = recalib.load(tmp_path / "run" / "calibrator.calib").predict(logits)
    np.testing.assert_allclose(fitted, recalib.fit(logits, LABELS).predict(logits), rtol=1e-9)


def test_two_processes_write_the_rows_of_all(tmp_path: Path) -> None:
    _, logits = train(tmp_path / "run", devices=2, strategy="ddp_spawn")
    lines = lines_of(tmp_path / "run")
    assert [line["epoch"] for line in lines] == [0, 1]
    expected = recalib.evaluate(LABELS, logits=logits, metrics=METRICS)
    assert {name: lines[1][name] for name in METRICS} == pytest.approx(expected, rel=1e-12)
    rows = read(tmp_path / "run" / "validation.npz").logits
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(logits, axis=0))
    fitted = recalib.load(tmp_path / "run" / "calibrator.calib").predict(logits)
    np.testing.assert_allclose(fitted, recalib.fit(logits, LABELS).predict(logits), rtol=1e-6)


def test_invalid_output_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"validation_step: found an output of .*scores"):
        train(tmp_path / "run", output="scores")


def test_example_of_the_page_trains_and_calibrates_the_best_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops early by ECE, keeps a checkpoint by NLL, and ends with the calibrator of that."""
    monkeypatch.chdir(tmp_path)
    names = run_examples(loop_example("Lightning"))
    trainer, best = names["trainer"], names["best"]
    lines = lines_of(tmp_path / "runs" / "digits")
    *epochs, last = lines
    assert 1 < len(epochs) <= 20
    assert last["nll"] == pytest.approx(min(line["nll"] for line in epochs), rel=1e-6)
    assert float(best.best_model_score) == pytest.approx(last["nll"], rel=1e-6)
    rows = read(tmp_path / "runs" / "digits" / "validation.npz")
    assert recalib.evaluate(rows.labels, logits=rows.logits)["nll"] == last["nll"]
    expected = recalib.fit(rows.logits, rows.labels).predict(rows.logits)
    fitted = recalib.load(tmp_path / "runs" / "digits" / "calibrator.calib")
    np.testing.assert_array_equal(fitted.predict(rows.logits), expected)
    assert epochs[-1]["accuracy"] > 0.9
    assert trainer.early_stopping_callback.monitor == "val_ece"
