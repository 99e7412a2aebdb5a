"""`python -m benchmarks.training.sst`: paper 004's losses on the Stanford Sentiment Treebank.

A binary Tree-LSTM on SST-2 by Adagrad, rate .05, decay 1e-4 and 25 epochs as in appendix D. The
paper's setting is `--nodes --glove`: every node of a training tree has a label, the epoch with the
best validation accuracy is kept, and words start from GloVe vectors, here of 50 dimensions
(`glove.py`). With `--phrases` every node is a row of its own, which takes four times as long, and
the likeliest epoch is kept, as without either. `--model word_mean` is a small network that ignores
the order of words. `--width`, `--embedding` and `--epochs` make a network small. Runs are kept
below `--cache` and never done again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import folder_with
from benchmarks.training import glove
from benchmarks.training.claims import TITLES, Claim, Side, has_learnt
from benchmarks.training.measuring import MAPS, measure
from benchmarks.training.networks import FACTORIES
from benchmarks.training.running import finish
from benchmarks.training.table import cell, claims_table, markdown_table
from benchmarks.training.tree_nodes import read_trees, train_on_nodes
from recalib.files import write_atomically
from recalib.recipe import LossPart, ModelPart, Optimiser, Recipe, Stop
from training.data import DataSpec, Splits, load

_HERE = Path(__file__).parent
OBJECTIVES = {
    "CE": LossPart(),
    "Brier": LossPart(primary="brier"),
    # 8 for documents: paper 004, appendix D.
    "CE + MMCE": LossPart(secondary="mmce", beta=8.0),
    "label smoothing": LossPart(primary="label_smoothing", options={"smoothing": 0.05}),
    "FLSD-53": LossPart(primary="focal_sample_dependent"),
    "focal 1": LossPart(primary="focal", options={"gamma": 1.0}),
    "focal 2": LossPart(primary="focal", options={"gamma": 2.0}),
    "focal 3": LossPart(primary="focal", options={"gamma": 3.0}),
    "focal 5, 3, 2": LossPart(primary="focal_scheduled"),
}
#: ECE of the paper's Tree-LSTM, and after temperature scaling: tables 1 and 5.
PAPER = {
    "CE": (7.37, 2.62),
    "Brier": (9.01, 2.79),
    "CE + MMCE": (5.03, 4.02),
    "label smoothing": (4.84, 4.11),
    "FLSD-53": (9.19, 1.83),
    "focal 1": (6.78, 3.29),
    "focal 2": (3.05, 3.05),
    "focal 3": (16.05, 1.78),
}
_MAPS = {name: MAPS[name] for name in ("", "TS")}
_METRICS = ("accuracy", "ece", "ece_equal_mass", "mce", "nll")


def _claim(table: str, low: str, high: str, map: str = "", metric: str = "ece") -> Claim:
    after = f" after {map}" if map else ""
    text = f"{low} below {high}{after}, {TITLES[metric]}"
    return Claim(f"004, {table}", text, Side(low, map), Side(high, map), metric)


CLAIMS = (
    _claim("table 1", "label smoothing", "CE"),
    _claim("table 1", "CE + MMCE", "CE"),
    _claim("table 1", "CE", "Brier"),
    _claim("table 1", "CE", "FLSD-53"),
    *(
        _claim("table 1", "FLSD-53", high, "TS")
        for high in ("CE", "Brier", "CE + MMCE", "label smoothing")
    ),
    _claim("table 1", "CE", "label smoothing", "TS"),
    Claim("004, table 1", "CE after TS below CE, ECE", Side("CE", "TS"), Side("CE")),
    _claim("table 5", "focal 2", "focal 1"),
    _claim("table 5", "FLSD-53", "focal 3"),
    _claim("table 5", "focal 1", "focal 3"),
    _claim("table 5", "focal 5, 3, 2", "focal 3"),
    _claim("table 9", "CE + MMCE", "CE", metric="nll"),
    _claim("table 10", "Brier", "CE", "TS", "nll"),
    _claim("table 11", "label smoothing", "CE", metric="mce"),
    _claim("table 11", "CE", "Brier", metric="mce"),
)


def recipe_for(objective: str, seed: int, options: argparse.Namespace) -> Recipe:
    """Return what is trained."""
    sizes = {"width": options.width, "embedding": options.embedding}
    # Named only where they are used: `finish` knows a run by what its recipe names.
    weights = {"weights": glove.NAME, "partial_weights": True} if options.glove else {}
    name = FACTORIES.get(options.model, options.model)
    named = {"name": "nodes"} if options.nodes else {}
    return Recipe(
        **named,
        data={},
        model=ModelPart(name=name, options=sizes, **weights),
        loss=OBJECTIVES[objective],
        optimiser=Optimiser(
            name="adagrad", learning_rate=0.05, weight_decay=1e-4, schedule="constant"
        ),
        stop=Stop(keep="best"),
        epochs=options.epochs,
        batch_size=options.batch,
        seed=seed,
        device=options.device,
        measured_rows=200,
    )


def main() -> None:
    """Train, unless that is done, and write the table."""
    arguments = options_of(sys.argv[1:])
    folder = folder_with("sst-trees.parquet")
    torch.set_num_threads(1)
    form = "trees" if arguments.model == "tree_lstm" else "words"
    file = "sst-trees.parquet"
    source = {"file": file, "phrases": arguments.phrases, "form": form}
    splits = load(DataSpec("trees", source), folder)
    initial_weights = glove.embedding(splits) if arguments.glove else None
    trees = read_trees(folder / file) if arguments.nodes else []
    by_objective: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.losses}
    for seed in arguments.seeds:
        for objective in arguments.losses:
            recipe = recipe_for(objective, seed, arguments)
            on_nodes = partial(train_on_nodes, recipe, splits, trees, initial_weights, objective)
            story = finish(
                arguments.cache, splits, objective, recipe, partial(measure, maps=_MAPS),
                again=arguments.measure_again, initial_weights=initial_weights,
                run=on_nodes if arguments.nodes else None,
            ).story  # fmt: skip
            print(
                f"{objective}, seed {seed}: {story.get('diverged', story['seconds'])}", flush=True
            )
            if "measured" in story:
                by_objective[objective].append(story)
            text = markdown(by_objective, splits, arguments)
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(arguments.output, text.encode())
    print(text)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    sst_parser = argparse.ArgumentParser(prog="python -m benchmarks.training.sst")
    sst_parser.add_argument("--model", choices=("tree_lstm", "word_mean"), default="tree_lstm")
    sst_parser.add_argument("--width", type=int, default=150, help="of states")
    sst_parser.add_argument(
        "--embedding", type=int, help="width of words, by default 300; with --glove 50"
    )
    sst_parser.add_argument("--epochs", type=int, default=25)
    sst_parser.add_argument("--batch", type=int, default=128, help="the paper gives none")
    sst_parser.add_argument("--phrases", action="store_true", help="every node is a row")
    sst_parser.add_argument("--nodes", action="store_true", help="all nodes of a tree at once")
    sst_parser.add_argument("--glove", action="store_true", help="start from word vectors")
    sst_parser.add_argument("--measure-again", action="store_true", help="the kept logits")
    sst_parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    sst_parser.add_argument("--losses", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    sst_parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    sst_parser.add_argument("--cache", type=Path, default=_HERE.parent / "results" / "sst")
    sst_parser.add_argument(
        "--output", type=Path, default=_HERE.parent / "results" / "sst" / "sst.md"
    )
    options = sst_parser.parse_args(arguments)
    if options.glove and options.embedding not in (None, glove.DIMENSIONS):
        sst_parser.error(f"GloVe vectors have {glove.DIMENSIONS} numbers: omit --embedding")
    if options.nodes and (options.phrases or options.model != "tree_lstm"):
        sst_parser.error("--nodes is for tree_lstm, without --phrases")
    options.embedding = options.embedding or (glove.DIMENSIONS if options.glove else 300)
    return options


def markdown(
    by_objective: Mapping[str, Sequence[dict[str, Any]]],
    splits: Splits,
    options: argparse.Namespace,
) -> str:
    """Return the table of runs, objective by objective and seed by seed, and the claims."""
    columns = [(name, metric) for name in _MAPS for metric in _METRICS]
    heads = [f"{TITLES[m]} {f'after {n}' if n else ''}".strip() for n, m in columns]
    heads.append("the paper's Tree-LSTM: ECE, after TS")
    rows = "phrases and sentences" if options.phrases else "sentences"
    if options.nodes:
        rows += ", and on neutral ones, with the labels of all nodes"
    start = "GloVe vectors" if options.glove else "random vectors"
    parts = [
        "# Training losses on SST-2: small",
        f"`python -m benchmarks.training.sst {shlex.join(sys.argv[1:])}`",
        f"{options.model} of width {options.width} on {len(splits.train)} {rows}, {options.epochs} "
        f"epochs; words start from {start} of {options.embedding} numbers; {len(splits.test)} test "
        "sentences. Percent, but for NLL (nats); the mean over seeds, with its standard error.",
    ]
    table = []
    for objective, stories in by_objective.items():
        if stories:
            cells = [
                cell([story["measured"][n]["test"][m] for story in stories], TITLES[m])
                for n, m in columns
            ]
            cells.append(", ".join(f"{value:.2f}" for value in PAPER.get(objective, ())))
            mark = "" if all(has_learnt(story) for story in stories) else " †"
            table.append((f"{objective}{mark}", f"{len(stories)}", *cells))
    parts += [markdown_table(("objective", "seeds", *heads), table)]
    parts += ["†: less than 10 points more accurate than chance."]
    return "\n\n".join([*parts, claims_table(by_objective, CLAIMS)])


if __name__ == "__main__":
    main()
