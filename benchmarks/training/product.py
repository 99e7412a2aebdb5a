"""`python -m benchmarks.training.product`: paper 000's product of losses, small.

Table 2 of the paper has 42 cells, each a data set, a primary and a secondary loss: 3 by 6 for
CIFAR-100 and CIFAR-10, and 6 with the likelihood for ImageNet. Here they are 3 by 6 for CIFAR-10
(fixed features, `features.py`) and the digits of scikit-learn, and 6 for SST-2 (mean word vectors,
from GloVe), on networks that train in seconds. Where the likelihood memorises, the paper trains
SB-ECE and S-AvUC interleaved; these runs are further rows.

As in appendix G, κ and T of the secondary loss, β and the weight decay are tuned in turn, with the
first seed, on validation rows: the lowest ℓ2 ECE among the runs within one point of the highest
accuracy (`training.engine.trials.best_of`). The paper does not publish its values; `GRID` is small.
Then every cell is trained with all seeds, and measured on test rows.

Each run is a file below `--cache` and is not repeated. The tables are written after each cell.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.data import folder_with
from benchmarks.training import glove
from benchmarks.training.measuring import MAPS, measure
from benchmarks.training.networks import FACTORIES
from benchmarks.training.product_tables import Cell, write
from benchmarks.training.running import Budget, Finished, finish, prepare
from recalib.files import write_atomically
from recalib.recipe import Interleave, LossPart, ModelPart, Optimiser, Recipe, Tune
from training.data import DataSpec, Splits, load
from training.engine.artifacts import LoadedData
from training.engine.search import ListSearch
from training.engine.trials import Candidate, Trial

PRIMARY = {"NLL": "cross_entropy", "focal": "focal", "MSE": "brier"}
SECONDARY = {
    "MMCE": "mmce", "AvUC": "avuc", "AvUC-GS": "avuc_gs", "S-AvUC": "s_avuc", "SB-ECE": "sb_ece",
}  # fmt: skip
#: The paper interleaves these, with the likelihood.
INTERLEAVED = ("S-AvUC", "SB-ECE")
#: The values of each option; a secondary loss has some of the options.
GRID: dict[str, tuple[float, ...]] = {
    "kappa": (0.3, 0.7),
    "beta": (0.1, 1.0, 3.0),
    "weight_decay": (5e-4, 5e-3),
}
_TEMPERATURES = {"S-AvUC": (0.1, 1.0), "SB-ECE": (0.001, 0.01)}
_MAPS = {name: MAPS[name] for name in ("", "TS", "TS-SB-ECE")}
_VALIDATION_METRICS = ("accuracy", "ece_l2_equal_mass", "nll")
#: Training rows that are measured after each epoch, for table 3.
_MEASURED_ROWS = 2000


@dataclass(frozen=True)
class Data:
    """A data set, the network that it trains, and the length of a run."""

    title: str
    load: Callable[[Path, Path], tuple[Splits, dict[str, Tensor] | None]]
    model: ModelPart
    primary: tuple[str, ...]
    epochs: int
    batch: int


def _cifar10(folder: Path, cache: Path) -> tuple[Splits, None]:
    return prepare(folder, Budget(model="mlp", size=32, rows=10_000), cache), None


def _sst(folder: Path, _cache: Path) -> tuple[Splits, dict[str, Tensor]]:
    splits = load(DataSpec("trees", {"file": "sst-trees.parquet", "form": "words"}), folder)
    return splits, glove.embedding(splits)


def _digits(_folder: Path, cache: Path) -> tuple[Splits, None]:
    path = cache / "digits.npz"
    if not path.is_file():
        inputs, labels = load_digits(return_X_y=True)
        buffer = io.BytesIO()
        np.savez(buffer, inputs=(inputs / 16).astype(np.float32), labels=labels.astype(np.int64))
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return load(DataSpec("arrays", {"train": path.name}, validation=400, test=900), cache), None


_MLP = ModelPart(name=FACTORIES["mlp"], options={"width": 128})
_WORD_MEAN = ModelPart(
    name=FACTORIES["word_mean"],
    options={"embedding": glove.DIMENSIONS},
    weights=glove.NAME,
    partial_weights=True,
)
DATA = {
    "cifar10": Data("CIFAR-10", _cifar10, _MLP, tuple(PRIMARY), epochs=20, batch=512),
    "digits": Data("digits", _digits, _MLP, tuple(PRIMARY), epochs=20, batch=128),
    "sst": Data("SST-2", _sst, _WORD_MEAN, ("NLL",), epochs=20, batch=512),
}


def cells(data: Data) -> Iterator[Cell]:
    """Yield the cells of a data set in the order of the paper, and the interleaved ones."""
    for primary in data.primary:
        for secondary in ("", *SECONDARY):
            yield Cell(data.title, primary, secondary)
        if primary == "NLL":
            for secondary in INTERLEAVED:
                yield Cell(data.title, primary, secondary, interleaved=True)


def recipe_for(cell: Cell, data: Data, seed: int) -> Recipe:
    """Return what a cell trains before its options are tuned.

    The optimiser is the paper's: SGD with momentum .9 and rate .1, which falls as in `running`.
    """
    secondary = SECONDARY.get(cell.secondary)
    loss = LossPart(primary=PRIMARY[cell.primary])
    if secondary is not None:
        loss = LossPart(primary=PRIMARY[cell.primary], secondary=secondary, beta=1.0)
    milestones = [data.epochs * 150 / 350, data.epochs * 250 / 350]
    return Recipe(
        data={},
        model=data.model,
        loss=loss,
        optimiser=Optimiser(milestones=milestones),
        interleave=Interleave(when="always" if cell.interleaved else "never"),
        epochs=data.epochs,
        batch_size=data.batch,
        seed=seed,
        device="cpu",
        measured_rows=_MEASURED_ROWS,
    )


def grid_of(cell: Cell) -> Tune:
    """Return the search for the options that a cell has."""
    options: dict[str, Any] = {"weight_decay": list(GRID["weight_decay"])}
    if cell.secondary:
        options["beta"] = list(GRID["beta"])
        options["temperature"] = list(_TEMPERATURES.get(cell.secondary, ()))
    if "AvUC" in cell.secondary:
        options["kappa"] = list(GRID["kappa"])
    return Tune(**options)


@dataclass(frozen=True)
class _Runner:
    """Trains the candidates of a cell, unless their files exist."""

    cell: Cell
    loaded: LoadedData
    cache: Path

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Trial]:
        for candidate in candidates:
            story = self.finish(candidate.recipe).story
            if "measured" in story:
                accuracy, error, nll = map(story["measured"]["validation"].get, _VALIDATION_METRICS)
                yield candidate.trial("", accuracy=accuracy, error=error, nll=nll)
            else:
                yield candidate.trial("", diverged=story["diverged"])

    def finish(self, recipe: Recipe) -> Finished:
        """Return the run of a recipe."""
        return finish(
            self.cache, self.loaded.splits, self.cell.name, recipe,
            partial(measure, maps=_MAPS, validation=_VALIDATION_METRICS),
            initial_weights=self.loaded.weights,
        )  # fmt: skip


def main(options: list[str] | None = None) -> None:
    """Tune and train the cells, unless that is done, and write the tables."""
    arguments = _parser().parse_args(options)
    torch.set_num_threads(1)
    folder = folder_with("cifar10-train.parquet")
    finished: dict[Cell, list[dict[str, Any]]] = {}
    for name in arguments.data:
        data, cache = DATA[name], arguments.cache / name
        loaded = LoadedData(*data.load(folder, cache))
        for cell in cells(data):
            finished[cell] = _train(cell, data, loaded, cache, arguments.seeds)
            write(arguments.output, finished, sys.argv[1:])


def _train(
    cell: Cell, data: Data, loaded: LoadedData, cache: Path, seeds: list[int]
) -> list[dict[str, Any]]:
    """Tune a cell with the first seed, train it with all seeds, and return the stories."""
    runner = _Runner(cell, loaded, cache)
    recipe = recipe_for(cell, data, seeds[0])
    best = ListSearch(recipe, grid_of(cell)).best(runner, keep=lambda _: None)
    stories = []
    for seed in seeds:
        seeded = recipe.model_copy(update={"seed": seed})
        story = runner.finish(Candidate.of(seeded, 0, best.values).recipe).story
        stories.append(story | {"options": best.values})
        print(f"{cell.data}, {cell.name}, seed {seed}: {story['seconds']} s", flush=True)
    return stories


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.product",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    results = Path(__file__).parents[1] / "results" / "product"
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--cache", type=Path, default=results)
    parser.add_argument("--output", type=Path, default=results / "product", help="without suffix")
    return parser


if __name__ == "__main__":
    main()
