"""The Lightning callback logs and writes what `recalib.evaluate` returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.errors import InputError
from tests.fitting.conftest import draw

pytestmark = [
    pytest.mark.slow,  # Lightning is imported and trains
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]

LOGITS, LABELS = draw(96, 3, 2.0)
METRICS = ("accuracy", "nll", "ece")


def train(path: Path, **options: Any) -> tuple[Any, np.ndarray]:
    """Train two epochs; return the trainer and the logits after the last one."""
    from tests.lightning_training import train

    return train(path, METRICS, **options)


def test_each_epoch_is_logged_and_written(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "calibration.jsonl"
    trainer, logits = train(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line.pop("epoch"), line.pop("step")) for line in lines] == [(0, 6), (1, 12)]
    expected = recalib.evaluate(LABELS, logits=logits, metrics=METRICS)
    assert lines[1] == pytest.approx(expected, rel=1e-12)
    logged = {name: float(trainer.callback_metrics[f"val_{name}"]) for name in METRICS}
    assert logged == pytest.approx(expected, rel=1e-6)


def test_two_processes_write_the_metrics_of_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "calibration.jsonl"
    _, logits = train(path, devices=2, strategy="ddp_spawn")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("epoch") for line in lines] == [0, 1]
    expected = recalib.evaluate(LABELS, logits=logits, metrics=METRICS)
    assert {name: lines[1][name] for name in METRICS} == pytest.approx(expected, rel=1e-12)


def test_invalid_use_is_rejected(tmp_path: Path) -> None:
    from recalib.lightning import CalibrationCallback

    with pytest.raises(InputError, match=r"validation_step: found an output of .*scores"):
        train(tmp_path / "calibration.jsonl", output="scores")
    with pytest.raises(InputError, match="did you mean ece"):
        CalibrationCallback(metrics=["eec"])


def test_example_of_a_module_with_a_loss_trains(tmp_path: Path) -> None:
    import pytorch_lightning as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from recalib.losses import LOSSES

    document = Path(__file__).parents[1] / "docs" / "training.md"
    example = document.read_text().split("```py\nfrom pytorch_lightning")[1].split("```")[0]
    names: dict[str, Any] = {
        "LOSSES": LOSSES,
        "torch": torch,
        "small": lambda classes: torch.nn.Linear(3, classes),
    }
    exec("from pytorch_lightning" + example, names)  # noqa: S102
    batch = torch.tensor(LOGITS, dtype=torch.float32), torch.tensor(LABELS)
    module = names["Digits"]()
    before = float(module.training_step(batch))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(TensorDataset(*batch), batch_size=16))
    assert float(module.training_step(batch)) < 0.8 * before
