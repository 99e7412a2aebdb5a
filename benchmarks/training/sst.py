"""`python -m benchmarks.training.sst`: paper 004's losses on the Stanford Sentiment Treebank.

A binary Tree-LSTM on SST-2 by Adagrad, rate .05, decay 1e-4 and 25 epochs as in appendix D, of
which the epoch with the best score on validation rows is kept: the paper keeps the most accurate,
we the likeliest. Words have no GloVe vectors to start from, and only whole sentences are trained
on unless `--phrases`. `--width`, `--embedding` and `--epochs` make it small. Runs are kept below
`--cache` and never done again.

Table 1 of the paper has, in percent ECE before and after temperature scaling: cross-entropy 7.37
and 2.62, Brier 9.01 and 2.79, MMCE 5.03 and 4.02, label smoothing 4.84 and 4.11, FLSD-53 9.19 and
1.83.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

import recalib
from benchmarks.training.running import finish
from benchmarks.training.table import cell
from recalib.files import write_atomically
from recalib.metrics.evaluate import evaluate
from recalib.recipe import LossPart, ModelPart, Optimiser, Recipe, Stop
from training.data import DataSpec, Splits, load

__all__ = ["OBJECTIVES", "markdown", "measure", "recipe_for"]

_HERE = Path(__file__).parent
OBJECTIVES = {
    "CE": LossPart(),
    "Brier": LossPart(primary="brier"),
    # 8 for documents: paper 004, appendix D.
    "CE + MMCE": LossPart(secondary="mmce", beta=8.0),
    "label smoothing": LossPart(primary="label_smoothing", options={"smoothing": 0.05}),
    "FLSD-53": LossPart(primary="focal_sample_dependent"),
}
_METRICS = ("accuracy", "ece", "ece_equal_mass", "nll")


def recipe_for(objective: str, seed: int, options: argparse.Namespace) -> Recipe:
    """Return what is trained."""
    sizes = {"width": options.width, "embedding": options.embedding}
    return Recipe(
        data={},
        model=ModelPart(name="tree_lstm", options=sizes),
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


def measure(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, float]]:
    """Return test metrics before (``""``) and after temperature scaling (``"TS"``)."""
    results = {}
    for name, map_ in (("", "identity"), ("TS", "temperature")):
        fitted = recalib.fit(arrays["validation_logits"], arrays["validation_labels"], map=map_)
        estimates = evaluate(
            arrays["test_labels"],
            probabilities=fitted.predict(arrays["test_logits"]),
            metrics=_METRICS,
        )
        results[name] = {metric: float(estimate.value) for metric, estimate in estimates.items()}
    return results


def main() -> None:
    """Train, unless that is done, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.sst")
    parser.add_argument("--width", type=int, default=150, help="of states")
    parser.add_argument("--embedding", type=int, default=300, help="width of words")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--batch", type=int, default=128, help="the paper gives none")
    parser.add_argument("--phrases", action="store_true", help="train on every node")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--losses", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cache", type=Path, default=_HERE.parent / "results" / "sst")
    parser.add_argument("--output", type=Path, default=_HERE.parent / "results" / "sst" / "sst.md")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("RECALIB_DATA", _HERE.parents[2] / "shared" / "data"))
    if not (folder / "sst-trees.parquet").is_file():
        sys.exit(f"no sst-trees.parquet in {folder}: set RECALIB_DATA to its folder")
    torch.set_num_threads(1)
    options = {"file": "sst-trees.parquet", "phrases": arguments.phrases}
    splits = load(DataSpec("trees", options), folder)
    by_objective: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.losses}
    for seed in arguments.seeds:
        for objective in arguments.losses:
            recipe = recipe_for(objective, seed, arguments)
            story = finish(arguments.cache, splits, objective, recipe, measure).story
            print(
                f"{objective}, seed {seed}: {story.get('diverged', story['seconds'])}", flush=True
            )
            if "measured" in story:
                by_objective[objective].append(story["measured"])
    text = markdown(by_objective, splits)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, text.encode())
    print(text)


def markdown(by_objective: Mapping[str, Sequence[dict[str, Any]]], splits: Splits) -> str:
    """Return the table of what `measure` found, objective by objective and seed by seed."""
    titles = {"accuracy": "accuracy", "ece": "ECE", "ece_equal_mass": "AdaECE", "nll": "NLL"}
    columns = [(n, m) for n in ("", "TS") for m in _METRICS]
    heads = [f"{titles[m]} {f'after {n}' if n else ''}".strip() for n, m in columns]
    lines = [
        "# Training losses on SST-2: under-trained",
        "",
        f"`python -m benchmarks.training.sst {shlex.join(sys.argv[1:])}`",
        "",
        f"A Tree-LSTM on {len(splits.train)} sentences, judged by {len(splits.test)}; percent, but "
        "for NLL (nats); the mean over seeds, with its standard error.",
        "",
        f"| objective | seeds | {' | '.join(heads)} |",
        f"|---|--:|{'--:|' * len(heads)}",
    ]
    for objective, measured in by_objective.items():
        if measured:
            cells = [cell([metrics[n][m] for metrics in measured], titles[m]) for n, m in columns]
            lines.append(f"| {objective} | {len(measured)} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
