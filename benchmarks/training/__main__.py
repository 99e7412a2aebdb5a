"""`python -m benchmarks.training`: train with every loss at one budget, and tabulate calibration.

Each finished run is one file below `--cache` and is never done again, so that an interrupted
command goes on where it was. Runs go seed by seed, those that the papers put first (`LEADING`) in
front; of all but the first seed they are the only ones, unless `--losses` says which. The table is
rewritten after each run.

At its defaults this is what one busy core does in an hour. What the papers do, or nearly, is

    python -m benchmarks.training --model resnet50 --width 64 --size 32 --rows 45000 --epochs 60 \
        --batch 128 --shifted 10000 --device cuda
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.training.measuring import measure
from benchmarks.training.objectives import LEADING, OBJECTIVES, RELEASED
from benchmarks.training.running import Budget, Finished, finish, prepare_all, recipe_for
from benchmarks.training.table import write

_HERE = Path(__file__).parent


def main() -> None:
    """Run the selected trainings."""
    arguments = parser().parse_args()
    if arguments.device != "cuda":
        torch.set_num_threads(arguments.threads)
    budget = budget_of(arguments)
    splits = prepare_all(budget, arguments.cache).splits
    finished: list[Finished] = []
    losses = list(RELEASED) if arguments.released else arguments.losses
    for objective, seed in _order(losses, arguments.seeds):
        recipe = recipe_for(objective, seed, budget)
        run = finish(
            arguments.cache, splits, objective, recipe, measure, budget.shifted,
            again=arguments.measure_again,
        )  # fmt: skip
        status = run.story.get("diverged", f"{run.story['seconds']} s")
        print(f"{objective}, seed {seed}: {status}", flush=True)
        finished.append(run)
        write(arguments.output, finished, budget, splits)


def _order(losses: list[str] | None, seeds: list[int]) -> Iterator[tuple[str, int]]:
    other_objectives = [objective for objective in OBJECTIVES if objective not in LEADING]
    for place, seed in enumerate(seeds):
        for objective in losses or (LEADING if place else [*LEADING, *other_objectives]):
            yield objective, seed


def budget_of(arguments: argparse.Namespace) -> Budget:
    """Return the budget that the command line asks for."""
    return Budget(**{field.name: getattr(arguments, field.name) for field in fields(Budget)})


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    defaults = Budget()
    argument_parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    argument_parser.add_argument(
        "--model", default=defaults.model, help="a name in training.models.MODELS, or mlp"
    )
    argument_parser.add_argument(
        "--size", type=int, default=defaults.size, help="height and width of images"
    )
    argument_parser.add_argument("--rows", type=int, default=defaults.rows, help="training rows")
    argument_parser.add_argument("--epochs", type=int, default=defaults.epochs)
    argument_parser.add_argument("--batch", type=int, default=defaults.batch)
    argument_parser.add_argument(
        "--width", type=int, default=defaults.width, help="of the first stage, or 0"
    )
    argument_parser.add_argument(
        "--rate", type=float, help="learning rate to begin with, by default 0.1"
    )
    argument_parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    argument_parser.add_argument("--losses", nargs="+", choices=OBJECTIVES, metavar="LOSS")
    argument_parser.add_argument(
        "--released", action="store_true", help="the losses as released, and their baselines"
    )
    argument_parser.add_argument(
        "--shifted", type=int, default=defaults.shifted, help="test rows corrupted"
    )
    argument_parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default=defaults.device
    )
    argument_parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    argument_parser.add_argument(
        "--cache", type=Path, default=_HERE.parent / "results" / "training"
    )
    argument_parser.add_argument(
        "--output", type=Path, default=_HERE.parent / "results" / "training" / "cifar10",
        help="the table's name, to which .md and .json are added",
    )  # fmt: skip
    argument_parser.add_argument(
        "--measure-again", action="store_true", help="the kept logits of finished runs"
    )
    return argument_parser


if __name__ == "__main__":
    main()
