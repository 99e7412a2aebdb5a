"""`python -m benchmarks.training.mdca`: why MDCA lowers the calibration error here.

Paper 001, table 3, has MDCA (6.86% ECE) above cross-entropy (5.85) on CIFAR-10. The networks of
this folder have it below. Three differences could explain that, and each is a setting here:

- the weight: the source divides MDCA by the number of classes, so that it counts a tenth of ours;
  paper 001 does not publish its factor;
- the batch: class frequencies of larger batches are less noisy;
- memorisation: the paper's networks know their training rows by heart, and ours do not.

A fourth explanation is that MDCA only slows the fit to the training rows. For this, cross-entropy
is also trained for fewer epochs, to the training accuracies around that of MDCA.

The network and the features are those of `cifar10-features.md`. Each run is a file below `--cache`
and is not repeated; the table is written at the end.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import folder_with
from benchmarks.training.claims import Claim, Side
from benchmarks.training.measuring import MAPS, measure
from benchmarks.training.running import Budget, finish, prepare, recipe_for
from benchmarks.training.table import cell, claims_table
from recalib.files import write_atomically
from recalib.recipe import LossPart, Recipe

_BUDGET = Budget(
    model="mlp", size=32, rows=10_000, epochs=15, batch=128, width=256, shifted=0, device="cpu"
)
_LOSSES = {
    "CE": LossPart(),
    "CE + MDCA / 10": LossPart(secondary="mdca", beta=0.1),
    "CE + MDCA": LossPart(secondary="mdca", beta=1.0),
}
_MAPS = {name: MAPS[name] for name in ("", "TS")}


@dataclass(frozen=True)
class Setting:
    """A number of epochs, the rows of a batch, and the losses that are trained with them."""

    epochs: int
    batch: int
    losses: tuple[str, ...]

    def name(self, loss: str) -> str:
        """Return the name of a row of the table."""
        return f"{loss}, {self.epochs} epochs, batches of {self.batch}"


SETTINGS = (
    Setting(15, 128, tuple(_LOSSES)),
    Setting(15, 512, tuple(_LOSSES)),
    Setting(40, 128, tuple(_LOSSES)),
    *(Setting(epochs, 128, ("CE",)) for epochs in (7, 9, 11, 13)),
)


def main(options: Sequence[str] | None = None) -> None:
    """Train, unless that is done, and write the table."""
    arguments = _parser().parse_args(options)
    torch.set_num_threads(1)
    splits = prepare(folder_with("cifar10-train.parquet"), _BUDGET, arguments.cache)
    stories: dict[str, list[dict[str, Any]]] = {}
    for seed in arguments.seeds:
        for setting in SETTINGS:
            for loss in setting.losses:
                recipe = recipe_of(setting, loss, seed)
                measured = partial(measure, maps=_MAPS)
                story = finish(arguments.cache, splits, loss, recipe, measured).story
                print(f"{setting.name(loss)}, seed {seed}: {story['seconds']} s", flush=True)
                stories.setdefault(setting.name(loss), []).append(story)
    text = markdown(stories)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, text.encode())
    print(text)


def recipe_of(setting: Setting, loss: str, seed: int) -> Recipe:
    """Return what is trained; all training rows are measured."""
    budget = replace(_BUDGET, epochs=setting.epochs, batch=setting.batch)
    fields = {"loss": _LOSSES[loss], "measured_rows": 0}  # 0: all
    return recipe_for("CE", seed, budget).model_copy(update=fields)


def markdown(stories: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the table of runs and the claims."""
    heads = ("loss", "seeds", "training accuracy", "training ECE", "accuracy", "ECE", "ECE+TS")
    lines = [
        "# MDCA and the fit to the training rows: small",
        "",
        f"`python -m benchmarks.training.mdca {shlex.join(sys.argv[1:])}`",
        "",
        f"{_BUDGET.model} of width {_BUDGET.width} on fixed features of {_BUDGET.rows} images of "
        "CIFAR-10. Percent, the mean over seeds with its standard error; training rows are "
        "measured after the last epoch. MDCA / 10 is a mean over classes as in the source, MDCA a "
        "sum. Claims of equal fit compare MDCA with cross-entropy of fewer epochs.",
        "",
        f"| {' | '.join(heads)} |",
        f"|---|{'--:|' * (len(heads) - 1)}",
    ]
    for name, runs in stories.items():
        train = [run["history"][-1]["train"] for run in runs]
        tests = [[run["measured"][map]["test"] for run in runs] for map in _MAPS]
        columns = [(train, "accuracy"), (train, "ece"), (tests[0], "accuracy")]
        columns += [(rows, "ece") for rows in tests]
        cells = [cell([row[metric] for row in rows], metric) for rows, metric in columns]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", claims_table(stories, claims())])


def claims() -> list[Claim]:
    """Return paper 001's claim in each setting, after TS, and for cross-entropy of fewer epochs."""
    pairs = [
        ("001, table 3", setting.name("CE"), setting.name(loss))
        for setting in SETTINGS
        for loss in setting.losses[1:]
    ]
    slowed = SETTINGS[0].name("CE + MDCA")
    shorter = [setting for setting in SETTINGS if setting.losses == ("CE",)]
    pairs += [("equal fit", setting.name("CE"), slowed) for setting in shorter]
    return [
        Claim(source, f"{low} below {high}{after}, ECE", Side(low, map), Side(high, map))
        for map, after in (("", ""), ("TS", " after TS"))
        for source, low, high in pairs
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.mdca",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    results = Path(__file__).parents[1] / "results" / "mdca"
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--cache", type=Path, default=results)
    parser.add_argument("--output", type=Path, default=results / "mdca.md")
    return parser


if __name__ == "__main__":
    main()
