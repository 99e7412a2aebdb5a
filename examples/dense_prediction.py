"""Compare maps of dense predictions on the test images of a run.

    recalib train examples/scenes.toml --data FOLDER
    python examples/dense_prediction.py runs/scenes --data FOLDER

The network of the run predicts all pixels of its validation and test images. The maps are fitted to
the validation images: one temperature, and one for each class.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

import recalib
from recalib.metrics.dense import DenseEvaluation, DenseResult
from recalib.recipe import read_recipe
from recalib.reporting.terminal import say
from training.data import Split
from training.engine.artifacts import load_all
from training.engine.weights import read_weights
from training.models import build

_BATCH = 16
LogitsNKHW = NDArray[np.float32]


def predict(network: torch.nn.Module, split: Split) -> LogitsNKHW:
    """Return the logits of all images of a split."""
    with torch.inference_mode():
        batches = [
            network(split.batch(range(first, min(first + _BATCH, len(split))))).numpy()
            for first in range(0, len(split), _BATCH)
        ]
    return np.concatenate(batches)


def compare(run: Path, data: Path) -> dict[str, DenseResult]:
    """Return the metrics of the test images for each map."""
    recipe = read_recipe(run / "recipe.json")
    splits = load_all(recipe, data, confined=False).splits
    part = recipe.model
    network = build(part.name, splits.classes, facts=splits.facts, **part.options)
    network.load_state_dict(read_weights(run / "weights.safetensors"))
    network.eval()
    logits, test_logits = (predict(network, split) for split in (splits.validation, splits.test))
    labels, void = splits.validation.labels, splits.ignore_index

    probabilities = {
        name: recalib.fit(logits, labels, map=name, ignore_index=void).predict(test_logits)
        for name in ("identity", "temperature", "class_temperature")
    }

    results = {}
    for name, answer in probabilities.items():
        evaluation = DenseEvaluation(
            splits.classes, ignore_index=void, boundary=recipe.dense.boundary
        )
        evaluation.add(splits.test.labels, probabilities=answer)
        results[name] = evaluation.finish()
    return results


def summary(result: DenseResult) -> dict[str, str]:
    """Return the numbers of a map as text."""
    pixels, boundary, interior = result.pixels, result.boundary, result.interior
    return {
        "mIoU": f"{result.miou:.2%}",
        "NLL": f"{pixels['nll'].value:.4f}",
        "ECE": f"{pixels['ece'].value:.2%}",
        "ECE at boundaries": "" if boundary is None else f"{boundary['ece'].value:.2%}",
        "ECE elsewhere": "" if interior is None else f"{interior['ece'].value:.2%}",
        "median ECE of an image": f"{result.image_quantiles('ece', [0.5])[0]:.2%}",
    }


def table(results: dict[str, DenseResult]) -> Table:
    """Return a table with a row for each number, and a column for each map."""
    columns = {name: summary(result) for name, result in results.items()}
    answer = Table("metric")
    for name in columns:
        answer.add_column(name, justify="right")
    for metric in next(iter(columns.values())):
        answer.add_row(metric, *(column[metric] for column in columns.values()))
    return answer


def main() -> None:
    """Print the metrics of the test images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the data")
    arguments: Any = parser.parse_args()
    say(table(compare(arguments.run, arguments.data)))


if __name__ == "__main__":
    main()
