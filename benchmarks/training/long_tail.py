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
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from benchmarks.data import folder_with
from benchmarks.training.running import Budget, finish, prepare, recipe_for
from benchmarks.training.table import cell
from recalib.files import write_atomically
from recalib.fitting import fit
from recalib.metrics.evaluate import evaluate
from training.data import Splits

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
    pairs = [("identity", "nll"), *((map_, objective) for map_ in MAPS for objective in OBJECTIVES)]
    metrics = {}
    for map_, objective in pairs:
        fitted = fit(
            arrays["validation_logits"], arrays["validation_labels"], map=map_, objective=objective
        )
        estimates = evaluate(
            arrays["test_labels"],
            probabilities=fitted.predict(arrays["test_logits"]),
            metrics=("accuracy", "ece", "classwise_ece", "nll"),
        )
        metrics[f"{map_} {objective}"] = {
            name: float(estimate.value) for name, estimate in estimates.items()
        }
    return metrics


def main() -> None:
    """Train, unless that is done, and write the table."""
    results = _HERE.parent / "results" / "training"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.long_tail")
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--width", type=int, default=8, help="of the first stage, or 0")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--ratio", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cache", type=Path, default=results)
    parser.add_argument("--output", type=Path, default=results / "long_tail.md")
    arguments = parser.parse_args()
    folder = folder_with("cifar10-train.parquet")
    torch.set_num_threads(1)
    names = ("model", "size", "epochs", "device", "width")
    budget_options = {name: getattr(arguments, name) for name in names}
    budget = Budget(rows=0, shifted=0, batch=128, long_tail=arguments.ratio, **budget_options)
    splits = prepare(folder, budget, arguments.cache)
    by_map: dict[str, list[dict[str, float]]] = {}
    for seed in arguments.seeds:
        recipe = recipe_for("CE", seed, budget)
        story = finish(arguments.cache, splits, "CE long-tailed", recipe, measure).story
        if "diverged" in story:
            sys.exit(f"seed {seed}: {story['diverged']}")
        for way, metrics in story["measured"].items():
            by_map.setdefault(way, []).append(metrics)
    table = markdown(by_map, budget, splits)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, table.encode())
    print(table)


def markdown(
    by_map: Mapping[str, Sequence[Mapping[str, float]]], budget: Budget, splits: Splits
) -> str:
    """Return the table of what `measure` found, by what it calls it, and seed by seed."""
    titles = {"accuracy": "accuracy", "ece": "ECE", "classwise_ece": "cwECE", "nll": "NLL"}
    seeds = len(next(iter(by_map.values())))
    lines = [
        "# Maps on long-tailed CIFAR-10: under-trained",
        "",
        f"`python -m benchmarks.training.long_tail {shlex.join(sys.argv[1:])}`",
        "",
        f"{budget.model} of width {budget.width}, trained with cross-entropy on {len(splits.train)}"
        f" images of {budget.size}x{budget.size}, {budget.epochs} epochs; the maps are fitted to "
        f"{len(splits.validation)} others of the same shares of classes, and {len(splits.test)}, "
        f"as many of each class, judge. Percent, but for NLL (nats); the mean over {seeds} seeds, "
        "with its standard error where there are several.",
        "",
        f"| map | objective | {' | '.join(titles.values())} |",
        f"|---|---|{'--:|' * len(titles)}",
    ]
    for way, measured in by_map.items():
        cells = [cell([row[metric] for row in measured], titles[metric]) for metric in titles]
        lines.append(f"| {' | '.join(way.split())} | {' | '.join(cells)} |")
    lines += ["", "How much lower the class-wise scaled likelihood is, in points:", ""]
    lines += ["| map | ECE | cwECE |", "|---|--:|--:|"]
    for map_ in MAPS:
        plain, scaled = (by_map[f"{map_} {objective}"] for objective in OBJECTIVES)
        gains = [
            cell([a[metric] - b[metric] for a, b in zip(plain, scaled, strict=True)], metric)
            for metric in ("ece", "classwise_ece")
        ]
        lines.append(f"| {map_} | {' | '.join(gains)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
