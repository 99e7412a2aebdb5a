"""`python -m benchmarks.training.long_tail`: paper 003's long-tailed protocol, small.

CIFAR-10 thinned out by eq. 16 at a ratio of 0.1 leaves 20,431 images; half train the network with
cross-entropy and half fit the maps, each by likelihood and by the class-wise scaled likelihood of
that paper; all 10,000 test images, which are balanced, judge. Paper 003, table 2, finds that
class-wise scaling makes the error smaller for every map and network.

The network is small and trained shortly (`--model`, `--size`, `--epochs`); the run is kept below
`--cache` and never done again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import recalib
from benchmarks.training.running import Budget, finish, prepare, recipe_for
from recalib.metrics.evaluate import evaluate

__all__ = ["MAPS", "OBJECTIVES", "measure"]

_HERE = Path(__file__).parent
MAPS = (
    "temperature",
    "ensemble_temperature",
    "parameterized_temperature",
    "class_temperature",
)
OBJECTIVES = ("nll", "classwise_scaled_nll")


def measure(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, float]]:
    """Return test ECE, class-wise ECE, NLL and accuracy by ``map objective``."""
    ways = [("identity", "nll"), *((map_, one) for map_ in MAPS for one in OBJECTIVES)]
    found = {}
    for map_, objective in ways:
        fitted = recalib.fit(
            arrays["validation_logits"], arrays["validation_labels"], map=map_, objective=objective
        )
        said = evaluate(
            arrays["test_labels"],
            probabilities=fitted.predict(arrays["test_logits"]),
            metrics=("accuracy", "ece", "classwise_ece", "nll"),
        )
        found[f"{map_} {objective}"] = {name: float(one.value) for name, one in said.items()}
    return found


def main() -> None:
    """Train, unless that is done, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.long_tail")
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--width", type=int, default=8, help="of the first stage, or 0")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--ratio", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cache", type=Path, default=_HERE.parent / "results" / "training")
    asked = parser.parse_args()
    folder = Path(os.environ.get("RECALIB_DATA", _HERE.parents[2] / "shared" / "data"))
    if not (folder / "cifar10-train.parquet").is_file():
        sys.exit(f"no cifar10-train.parquet in {folder}: set RECALIB_DATA to its folder")
    torch.set_num_threads(1)
    names = ("model", "size", "epochs", "device", "width")
    asked_for = {name: getattr(asked, name) for name in names}
    budget = Budget(rows=0, shifted=0, batch=128, long_tail=asked.ratio, **asked_for)
    splits = prepare(folder, budget)
    for seed in asked.seeds:
        recipe = recipe_for("CE", seed, budget)
        story = finish(asked.cache, splits, "CE long-tailed", recipe, measure).story
        if "diverged" in story:
            sys.exit(f"seed {seed}: {story['diverged']}")
        title = f"seed {seed}: {len(splits.train)} training rows, {story['seconds']} s"
        table = Table("map", "objective", "ECE %", "cwECE %", "NLL", "accuracy %", title=title)
        for name, metrics in story["measured"].items():
            values = (metrics["ece"], metrics["classwise_ece"], metrics["accuracy"])
            ece, classwise, accuracy = (f"{one:.2%}".rstrip("%") for one in values)
            table.add_row(*name.split(), ece, classwise, f"{metrics['nll']:.4f}", accuracy)
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
