"""A training with Lightning, in a module that spawned processes import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from recalib.lightning import CalibrationCallback
from tests.fitting.conftest import draw

__all__ = ["train"]


class Classifier(pl.LightningModule):
    """A layer whose validation step returns logits under the name `output`."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output
        self.layer = torch.nn.Linear(3, 3)

    def training_step(self, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: Any) -> dict[str, torch.Tensor]:
        return {self.output: self.layer(batch[0]), "labels": batch[1]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(
    folder: Path, metrics: tuple[str, ...], *, output: str = "logits", **options: Any
) -> tuple[pl.Trainer, np.ndarray]:
    """Train two epochs; return the trainer and the logits after the last one."""
    torch.manual_seed(0)
    logits, labels = draw(96, 3, 2.0)
    features = torch.tensor(logits, dtype=torch.float32)
    loader = DataLoader(TensorDataset(features, torch.tensor(labels)), batch_size=16)
    classifier = Classifier(output)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=[CalibrationCallback(folder, metrics=metrics)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder.parent,
        **options,
    )
    trainer.fit(classifier, loader, loader)
    return trainer, classifier.layer(features).detach().numpy()
