"""`python -m benchmarks.training.selective_risk`: the selections of paper 002, small.

Selective risk has a smoothing parameter ν, a coverage and a confidence score; inverse and dual
focal loss have γ. The paper selects them by the loss on validation rows (appendix E, figures 4 and
6, tables 2 and 3). Here the negative log-likelihood selects, because values of different losses
cannot be compared. For each score, ν and the coverage are selected with the first seed. Then every
loss is trained with all seeds, and measured before and after temperature scaling and Meta-Cal
(figure 2, tables 1, 2 and 4). The first table shows figure 5: how far the smoothed distribution of
scores is from the scores' own.

Each run is a file below `--cache` and is not repeated; the tables are written at the end. The
arguments are those of `python -m benchmarks.training`, with other defaults.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.training.__main__ import budget_of, parser
from benchmarks.training.claims import TITLES, Claim, Side
from benchmarks.training.measuring import MAPS, measure
from benchmarks.training.objectives import OBJECTIVES
from benchmarks.training.running import Budget, Finished, finish, prepare_all, recipe_for
from benchmarks.training.table import cell, claims_table, markdown_table
from recalib.files import write_atomically
from recalib.losses.confidence_scores import Confidence, losses_and_scores, score_range
from recalib.losses.selective_risk import SelectiveRisk
from recalib.recipe import LossPart
from training.data import Splits

SCORES: tuple[Confidence, ...] = get_args(Confidence)
#: The values that the paper names, and larger ones.
NUS = (0.01, 0.1, 0.3, 1.0)
COVERAGES = (0.2, 0.5, 0.8, 1.0)
#: Appendix C.2 excludes an inverse focal loss of more than about 3.5.
GAMMAS = {"inverse focal": (1.0, 1.5, 2.0, 3.0), "dual focal, released": (1.0, 2.6, 4.0, 5.0)}
#: The losses of the paper without a selection.
FIXED = ("CE", "FLSD-53", "CE + KDE", "AURC")
_MAPS: dict[str, dict[str, Any]] = {
    "": MAPS[""],
    "TS": MAPS["TS"],
    "MetaMis": {"map": "meta_miscoverage"},
    "MetaAcc": {"map": "meta_accuracy"},
}
_METRICS = ("accuracy", "ece", "ece_equal_mass", "classwise_ece")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A loss with options; one candidate of each `family` is selected."""

    family: str
    options: str
    loss: LossPart


def candidates() -> list[Candidate]:
    """Return all candidates, family by family."""
    parts = []
    for score, nu, coverage in product(SCORES, NUS, COVERAGES):
        options = {"confidence": score, "nu": nu, "coverage": coverage}
        loss = LossPart(primary="selective_risk", options=options)
        parts.append(Candidate(f"AU, {score}", f"ν {nu:g}, coverage {coverage:g}", loss))
    for family, gammas in GAMMAS.items():
        for gamma in gammas:
            loss = LossPart(primary=OBJECTIVES[family].primary, options={"gamma": gamma})
            parts.append(Candidate(family, f"γ {gamma:g}", loss))
    return parts


def select(stories: Mapping[Candidate, Mapping[str, Any]]) -> dict[str, Candidate]:
    """Return the candidate with the lowest validation NLL of each family; diverged runs lose."""
    selected: dict[str, Candidate] = {}
    for candidate, story in stories.items():
        if "measured" in story and (
            candidate.family not in selected
            or _validation_nll(story) < _validation_nll(stories[selected[candidate.family]])
        ):
            selected[candidate.family] = candidate
    return selected


def _validation_nll(story: Mapping[str, Any]) -> float:
    return float(story["measured"]["validation"]["nll"])


def distances(logits: NDArray[Any], score: Confidence) -> list[tuple[float, float, float]]:
    """Return ν, and the largest and mean |G_ν − G| over rows, for each of `NUS` (figure 5).

    G is the scores' own distribution; G_ν is that of `SelectiveRisk` with its default bins.
    """
    rows = torch.from_numpy(np.asarray(logits, dtype=np.float64))
    _, scores = losses_and_scores(rows, torch.zeros(len(rows), dtype=torch.int64), score)
    low, high = score_range(score, rows.shape[1])
    ranks = torch.searchsorted(scores.sort().values, scores, right=True) / len(scores)
    results = []
    for nu in NUS:
        loss = SelectiveRisk(nu=nu, confidence=score)
        smooth = 1 - torch.exp(-loss._weight(scores, scores, low, high))
        gaps = (smooth - ranks).abs()
        results.append((nu, float(gaps.max()), float(gaps.mean())))
    return results


def main(options: Sequence[str] | None = None) -> None:
    """Train, unless that is done, and write the tables."""
    arguments = _parser().parse_args(options)
    if arguments.device != "cuda":
        torch.set_num_threads(arguments.threads)
    budget = budget_of(arguments)
    splits = prepare_all(budget, arguments.cache).splits
    grid = {
        candidate: _run(candidate.loss, arguments.seeds[0], budget, splits, arguments).story
        for candidate in candidates()
    }
    selected = select(grid)
    losses = {name: OBJECTIVES[name] for name in FIXED}
    losses |= {family: candidate.loss for family, candidate in selected.items()}
    runs: dict[str, list[Finished]] = {name: [] for name in losses}
    for seed in arguments.seeds:
        for name, loss in losses.items():
            runs[name].append(_run(loss, seed, budget, splits, arguments))
    shown = distances(runs["CE"][0].arrays["validation_logits"], "msp")
    stories = {
        name: [run.story for run in finished if run.arrays] for name, finished in runs.items()
    }
    text = markdown(budget, shown, grid, selected, stories)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, text.encode())
    print(text)


def _run(
    loss: LossPart, seed: int, budget: Budget, splits: Splits, arguments: argparse.Namespace
) -> Finished:
    recipe = recipe_for("CE", seed, budget).model_copy(update={"loss": loss})
    name = loss.secondary or loss.primary
    measured = partial(measure, maps=_MAPS, validation=("accuracy", "nll", "ece"))
    run = finish(arguments.cache, splits, name, recipe, measured, again=arguments.measure_again)
    status = run.story.get("diverged", f"{run.story['seconds']} s")
    print(f"{name}, {loss.options}, seed {seed}: {status}", flush=True)
    return run


def _parser() -> argparse.ArgumentParser:
    selection_parser = parser()
    results = Path(__file__).parents[1] / "results" / "selective_risk"
    selection_parser.prog = "python -m benchmarks.training.selective_risk"
    selection_parser.description = __doc__
    selection_parser.set_defaults(
        model="mlp", size=32, rows=10_000, epochs=15, batch=128, width=256, shifted=0,
        seeds=[1, 2, 3, 4, 5], cache=results, output=results / "selective_risk.md",
    )  # fmt: skip
    return selection_parser


def markdown(
    budget: Budget,
    shown: Sequence[tuple[float, float, float]],
    grid: Mapping[Candidate, Mapping[str, Any]],
    selected: Mapping[str, Candidate],
    stories: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return the tables: figure 5, the selections, and the losses with the selected options."""
    parts = [
        "# Selections of paper 002 on CIFAR-10: small",
        f"`python -m benchmarks.training.selective_risk {shlex.join(sys.argv[1:])}`",
        f"{budget.model} of width {budget.width} on {budget.rows} images, {budget.epochs} epochs; "
        "the paper trains ResNet-50 and larger networks on 45,000. In percent, NLL in nats.",
        "## Figure 5: the smoothed distribution of scores",
        "Distance of G_ν from the distribution of the maximum softmax probability of 5,000 "
        "validation images, for a network trained with cross-entropy.",
        markdown_table(
            ("ν", "largest", "mean"),
            [(f"{nu:g}", f"{100 * top:.1f}", f"{100 * mean:.1f}") for nu, top, mean in shown],
        ),
        "## Figures 4 and 6: validation metrics of the candidates",
        markdown_table(("loss", "options", "accuracy", "NLL", "ECE"), _grid_rows(grid, selected)),
        "## Figure 2, tables 1, 2 and 4: selected options, test images",
        "ECE, AdaECE (the paper's ECEa) and cwECE with 15 bins. Meta-Cal with 5% miscoverage, or "
        "90% accuracy of accepted rows; the paper does not publish its bounds.",
        *(_map_table(name, stories) for name in _MAPS),
        claims_table(stories, _claims(stories)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _grid_rows(
    grid: Mapping[Candidate, Mapping[str, Any]], selected: Mapping[str, Candidate]
) -> list[tuple[str, ...]]:
    rows = []
    for candidate, story in grid.items():
        mark = " (selected)" if selected.get(candidate.family) == candidate else ""
        values: tuple[str, ...] = ("diverged", "", "")
        if "measured" in story:
            metrics = story["measured"]["validation"]
            values = tuple(cell([metrics[name]], TITLES[name]) for name in metrics)
        rows.append((candidate.family, candidate.options + mark, *values))
    return rows


def _map_table(name: str, stories: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = []
    for loss, runs in stories.items():
        tests = [run["measured"][name]["test"] for run in runs]
        if tests:
            cells = [cell([test[metric] for test in tests], TITLES[metric]) for metric in _METRICS]
            rows.append((loss, f"{len(tests)}", *cells))
    title = f"### {f'After {name}' if name else 'The networks themselves'}"
    return f"{title}\n\n{markdown_table(('loss', 'seeds', *map(TITLES.get, _METRICS)), rows)}"


def _claims(stories: Mapping[str, Any]) -> list[Claim]:
    """Return claims of each score of selective risk, and of Meta-Cal."""
    au = [name for name in stories if name.startswith("AU, ")]
    others = [name for name in stories if name not in au]
    claims = [
        Claim("002, table 1", f"{low} below {high}, ECE", Side(low), Side(high))
        for low in au
        for high in others
    ]
    claims += [
        Claim("002, figure 2", f"{low} below {high}, ECE", Side(low), Side(high))
        for low, high in combinations(au, 2)
    ]
    claims += [
        Claim("002, table 4", f"{name}: MetaMis below TS, AdaECE", Side(name, "MetaMis"),
              Side(name, "TS"), "ece_equal_mass")
        for name in stories
    ]  # fmt: skip
    return claims


if __name__ == "__main__":
    main()
