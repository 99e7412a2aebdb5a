"""`python -m benchmarks.training`: train with every loss at one budget, and tabulate calibration.

Each finished run is one file below `--cache` and is never done again, so that an interrupted
command goes on where it was. Runs go seed by seed, those that the papers put first (`LEADING`) in
front; of all but the first seed they are the only ones, unless `--losses` says which. The table is
written anew after each run.

At its defaults this is what one busy core does in an hour. What the papers do, or nearly, is

    python -m benchmarks.training --model resnet50 --width 64 --size 32 --rows 45000 --epochs 60 \
        --batch 128 --shifted 10000 --device cuda
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.training.exporting import export
from benchmarks.training.measuring import measure
from benchmarks.training.objectives import LEADING, OBJECTIVES
from benchmarks.training.running import Budget, Finished, finish, prepare, recipe_for
from benchmarks.training.table import write

__all__ = ["budget_of", "main", "parser"]

_HERE = Path(__file__).parent


def main() -> None:
    """Run what is asked for."""
    asked = parser().parse_args()
    folder = Path(os.environ.get("RECALIB_DATA", _HERE.parents[2] / "shared" / "data"))
    if not (folder / "cifar10-train.parquet").is_file():
        sys.exit(f"no cifar10-train.parquet in {folder}: set RECALIB_DATA to its folder")
    if asked.device != "cuda":
        torch.set_num_threads(asked.threads)
    budget = budget_of(asked)
    splits = prepare(folder, budget)
    finished: list[Finished] = []
    for objective, seed in _order(asked.losses, asked.seeds):
        recipe = recipe_for(objective, seed, budget)
        one = finish(asked.cache, splits, objective, recipe, measure, budget.shifted)
        ended = one.story.get("diverged", f"{one.story['seconds']} s")
        print(f"{objective}, seed {seed}: {ended}", flush=True)
        finished.append(one)
        write(asked.output, finished, budget, splits)
        if asked.export and seed == asked.seeds[0]:
            export(asked.export, one, budget)


def _order(losses: list[str] | None, seeds: list[int]) -> Iterator[tuple[str, int]]:
    others = [objective for objective in OBJECTIVES if objective not in LEADING]
    for place, seed in enumerate(seeds):
        for objective in losses or (LEADING if place else [*LEADING, *others]):
            yield objective, seed


def budget_of(asked: argparse.Namespace) -> Budget:
    """Return the budget that the command line asks for."""
    names = [one.name for one in fields(Budget) if one.name != "long_tail"]
    return Budget(**{name: getattr(asked, name) for name in names})


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    usual = Budget()
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--model", default=usual.model, help="a name in training.models.MODELS")
    made.add_argument("--size", type=int, default=usual.size, help="height and width of images")
    made.add_argument("--rows", type=int, default=usual.rows, help="training rows")
    made.add_argument("--epochs", type=int, default=usual.epochs)
    made.add_argument("--batch", type=int, default=usual.batch)
    made.add_argument("--width", type=int, default=usual.width, help="of the first stage, or 0")
    made.add_argument("--rate", type=float, help="learning rate to begin with, by default 0.1")
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    made.add_argument("--losses", nargs="+", choices=OBJECTIVES, metavar="LOSS")
    made.add_argument("--shifted", type=int, default=usual.shifted, help="test rows corrupted")
    made.add_argument("--device", choices=("auto", "cpu", "cuda"), default=usual.device)
    made.add_argument("--threads", type=int, default=1, help="of a CPU")
    made.add_argument("--cache", type=Path, default=_HERE.parent / "results" / "training")
    made.add_argument(
        "--output", type=Path, default=_HERE.parent / "results" / "training" / "cifar10",
        help="the table's name, to which .md and .json are added",
    )  # fmt: skip
    made.add_argument("--export", type=Path, help="a folder for two networks' logits")
    return made


if __name__ == "__main__":
    main()
