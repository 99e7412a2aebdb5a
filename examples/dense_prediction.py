"""Calibrate dense predictions: losses, metrics and maps on logits (N, K, H, W).

    .venv/bin/python examples/dense_prediction.py

A small network learns to find shapes in noise (`training.data.Shapes`) with two objectives. Losses
take logits (N, K, H, W) and labels (N, H, W). Metrics and maps take one row for each pixel:
(N·H·W, K). The probabilities of a fitted map are reshaped back to images.
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
_METRICS = ("accuracy", "nll", "ece", "classwise_ece")
LogitsNKHW = NDArray[np.float32]


def as_rows(logits_nkhw: LogitsNKHW) -> NDArray[np.float32]:
    """Return rows (N·H·W, K), in the order of labels.reshape(-1)."""
    return np.moveaxis(logits_nkhw, 1, -1).reshape(-1, logits_nkhw.shape[1])


def as_images(rows: NDArray[Any], reference: LogitsNKHW) -> NDArray[Any]:
    """Return rows (N·H·W, K) in the shape of `reference`, (N, K, H, W)."""
    count, classes, height, width = reference.shape
    return np.moveaxis(rows.reshape(count, height, width, classes), -1, 1)


def train_network(objective: str, splits: Splits, epochs: int) -> Trained:
    """Train the network with one of `OBJECTIVES`."""
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
    results: dict[str, dict[str, Estimate]] = {}
    for name in OBJECTIVES:
        result = train_network(name, splits, epochs)
        calibrator = recalib.fit(
            as_rows(result.validation_logits),
            splits.validation.labels.reshape(-1),
            map="temperature",
        )
        probabilities = as_images(
            calibrator.predict(as_rows(result.test_logits)), result.test_logits
        )
        labels = splits.test.labels.reshape(-1)
        results[name] = evaluate(labels, logits=as_rows(result.test_logits), metrics=_METRICS)
        results[f"{name}, calibrated"] = evaluate(
            labels, probabilities=as_rows(probabilities), metrics=_METRICS
        )
    return results


def main() -> None:
    """Print the metrics over all pixels of the test images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200, help="number of training images")
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = compare(arguments.images, arguments.epochs)
    say(metrics_table(results, f"{arguments.images // 2} test images, one row for each pixel"))


if __name__ == "__main__":
    main()
