"""Calibrate dense predictions: losses, metrics and maps on logits (N, K, H, W).

    .venv/bin/python examples/dense_prediction.py

A small network learns to find shapes in noise (`training.data.Shapes`) with two objectives. Losses
take logits (N, K, H, W) and labels (N, H, W). Metrics and maps take a row for each pixel of a
sample.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

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
            result.validation.logits, result.validation.labels, map="temperature"
        )
        rows = result.test.logits, result.test.labels
        results[name] = evaluate(rows[1], logits=rows[0], metrics=_METRICS)
        results[f"{name}, calibrated"] = calibrator.evaluate(*rows, metrics=_METRICS)
    return results


def main() -> None:
    """Print the metrics over all pixels of the test images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200, help="number of training images")
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = compare(arguments.images, arguments.epochs)
    say(metrics_table(results, f"{arguments.images // 2} test images, a row for each pixel"))


if __name__ == "__main__":
    main()
