"""A class for every place: losses, metrics and maps on logits (N, K, H, W).

    .venv/bin/python examples/dense_prediction.py

A small network learns to find shapes in noise (`training.data.Shapes`) by two objectives. Losses
take logits and labels as they are, (N, K, H, W) and (N, H, W). Metrics and maps judge and fit
predictions, of which every place is one: (N·H·W, K). A fitted map goes back to images the same way.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import recalib
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate
from recalib.recipe import LossPart, ModelPart, Optimiser, Recipe
from recalib.terminal import metrics_table, say
from training.data import DataSpec, Splits, load
from training.engine.checkpoints import FolderCheckpoints
from training.engine.loop import Trained, Unwatched, train

OBJECTIVES = {
    "cross-entropy": LossPart(),
    "focal 3 + SB-ECE": LossPart(primary="focal", secondary="sb_ece"),
}
_SHOWN = ("accuracy", "nll", "ece", "classwise_ece")
LogitsNKHW = NDArray[np.float32]


def as_rows(logits_nkhw: LogitsNKHW) -> NDArray[np.float32]:
    """Return (N·H·W, K): places in the order of labels.reshape(-1)."""
    return np.moveaxis(logits_nkhw, 1, -1).reshape(-1, logits_nkhw.shape[1])


def as_images(rows: NDArray[Any], like: LogitsNKHW) -> NDArray[Any]:
    """Return rows (N·H·W, K) as (N, K, H, W)."""
    count, classes, height, width = like.shape
    return np.moveaxis(rows.reshape(count, height, width, classes), -1, 1)


def trained(objective: str, splits: Splits, epochs: int) -> Trained:
    """Train the network by one of the objectives."""
    recipe = Recipe(
        data={},
        model=ModelPart(name="segmenter", options={"width": 8}),
        loss=OBJECTIVES[objective],
        optimiser=Optimiser(name="adamw", learning_rate=0.01, schedule="cosine"),
        epochs=epochs,
        batch_size=16,
        measured_rows=16,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        return train(recipe, splits, FolderCheckpoints(Path(folder)), Unwatched())


def compare(images: int, epochs: int) -> dict[str, dict[str, Estimate]]:
    """Return each objective's metrics on test images, before and after temperature scaling."""
    spec = {"train": images, "validation": images // 2, "test": images // 2}
    splits = load(DataSpec("shapes", spec))
    found: dict[str, dict[str, Estimate]] = {}
    for name in OBJECTIVES:
        said = trained(name, splits, epochs)
        fitted = recalib.fit(
            as_rows(said.validation_logits), splits.validation.labels.reshape(-1), map="temperature"
        )
        probabilities = as_images(fitted.predict(as_rows(said.test_logits)), said.test_logits)
        labels = splits.test.labels.reshape(-1)
        found[name] = evaluate(labels, logits=as_rows(said.test_logits), metrics=_SHOWN)
        found[f"{name}, calibrated"] = evaluate(
            labels, probabilities=as_rows(probabilities), metrics=_SHOWN
        )
    return found


def main() -> None:
    """Print the metrics of every place of the test images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200, help="to train on")
    parser.add_argument("--epochs", type=int, default=6)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = compare(asked.images, asked.epochs)
    say(metrics_table(found, f"{asked.images // 2} test images, a prediction for every place"))


if __name__ == "__main__":
    main()
