"""The runs as tables, in Markdown for people and in JSON.

`python -m benchmarks.training.table FILE.json ...` computes the claims and the effect sizes again
from the runs in FILE.json, and writes them into FILE.md.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.claims import (
    CLAIMS,
    TITLES,
    Claim,
    cohens_d,
    has_learnt,
    verdict,
    within_subject_error,
)
from benchmarks.training.measuring import MAPS
from benchmarks.training.running import Budget, Finished
from recalib.files import write_atomically
from training.data import Splits
from training.data.corruption import CORRUPTIONS

#: The maps of paper 000, figure 2.
_PAIR = ("TS", "TS-SB-ECE")
Story = dict[str, Any]
Value = Callable[[Story], float]


def write(path: Path, runs: Sequence[Finished], budget: Budget, splits: Splits) -> None:
    """Write `path`.md and `path`.json."""
    stories = [run.story for run in runs]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of each run's history the last epoch: all of it is in the run's file.
    runs_without_history = [
        story | {"history": story["history"][-1:]} if "history" in story else story
        for story in stories
    ]
    document = {
        "command": _command(),
        "budget": vars(budget) | {"under_trained": budget.under_trained},
        "data": splits.digests,
        "runs": runs_without_history,
    }
    text = json.dumps(document, separators=(",", ":"))
    write_atomically(path.with_suffix(".json"), text.encode())
    write_atomically(path.with_suffix(".md"), _markdown(stories, budget, splits).encode())


def _markdown(stories: Sequence[Story], budget: Budget, splits: Splits) -> str:
    finished = _by_objective(stories)
    parts = [_head(stories, budget, splits)]
    for name in MAPS:
        parts.append(f"## Test, {f'after {name}' if name else 'the networks themselves'}\n")
        columns = {title: _test(name, metric) for metric, title in TITLES.items()}
        if not name:
            train = {"training accuracy": lambda run: run["history"][-1]["train"]["accuracy"]}
            columns = train | columns
        parts.append(_table(finished, columns))
    if budget.shifted:
        parts.append(
            "## Under shift: ℓ2 ECE at severities 1 to 5\n\n"
            f"The mean over {len(CORRUPTIONS)} corruptions of {budget.shifted} test images, at the "
            "size that the networks see. The maps are fitted to clean validation images.\n"
        )
        for name in MAPS:
            parts.append(f"### {f'After {name}' if name else 'The networks themselves'}\n")
            columns = {f"{severity + 1}": _shifted(name, severity) for severity in range(5)}
            parts.append(_table(finished, columns))
        parts.append(within_corruptions(finished))
    diverged = [run for run in stories if "diverged" in run]
    lines = [f"- {run['objective']}, seed {run['seed']}: {run['diverged']}" for run in diverged]
    if lines:
        parts += ["## Diverged\n", *lines, ""]
    parts += [claims_table(finished), _effects(finished)]
    return "\n".join(parts)


def _head(stories: Sequence[Story], budget: Budget, splits: Splits) -> str:
    devices = ", ".join(sorted({story["device"] for story in stories}))
    minutes = sum(story["processor_seconds"] for story in stories) / 60
    width = f" of width {budget.width}" if budget.width else ""
    inputs = "fixed features (`features.py`) of " if budget.model == "mlp" else ""
    title = "# Training losses on CIFAR-10"
    if budget.under_trained:
        title += ": under-trained"
    parts = [
        title,
        f"`{_command()}`",
        f"{budget.model}{width} on {inputs}{len(splits.train)} images of "
        f"{budget.size}x{budget.size}, "
        f"{budget.epochs} epochs in batches of {budget.batch}, rate {budget.rate or 0.1:g}; "
        f"{len(splits.validation)} validation and {len(splits.test)} test images. "
        f"{len(stories)} runs on {devices}: {minutes:.0f} minutes of processor time. "
        "Objectives and their options: `objectives.py`; all else is the same: `running.py`.",
    ]
    if budget.under_trained:
        parts.append(
            "**Under-trained**: the papers train networks with 100 times the weights on 45,000 "
            "images of 32x32 for 200 to 350 epochs, to accuracies of 95%. Like theirs, these "
            "small networks fit their training images far better than other images, and are "
            "overconfident. A claim that does not hold here is not refuted."
        )
    parts.append(
        "In percent, NLL in nats; the mean over seeds, with its standard error if there are "
        "several. †: has not learnt at this rate and length: its accuracy is less than 10 points "
        "above chance, so its calibration is not meaningful.\n"
    )
    return "\n\n".join(parts)


def _table(by_objective: dict[str, list[Story]], columns: dict[str, Value]) -> str:
    rows = []
    for name, stories in by_objective.items():
        if stories:
            cells = [cell([of(story) for story in stories], title) for title, of in columns.items()]
            mark = "" if all(has_learnt(story) for story in stories) else " †"
            rows.append((f"{name}{mark}", f"{len(stories)}", *cells))
    return markdown_table(("objective", "seeds", *columns), rows) + "\n"


def markdown_table(heads: Sequence[Any], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def cell(values: Sequence[float], title: str) -> str:
    """Return the mean, with its standard error where there are several values: percent, or nats."""
    digits, factor = (3, 1) if title == "NLL" else (1, 100)
    mean = float(np.mean(values)) * factor
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    error = float(np.std(values, ddof=1)) * factor / math.sqrt(len(values))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _test(name: str, metric: str) -> Value:
    return lambda story: story["measured"][name]["test"][metric]


def _shifted(name: str, severity: int) -> Value:
    return lambda story: story["measured"][name]["shifted"][severity]["ece_l2_equal_mass"]


def within_corruptions(by_objective: Mapping[str, Sequence[Story]]) -> str:
    """Return ℓ2 errors under shift of two maps, with the error within corruptions (figure 2)."""
    rows = []
    for name, stories in by_objective.items():
        for severity in range(5) if stories else ():
            measured = [
                [run["measured"][map]["shifted"][severity] for map in _PAIR] for run in stories
            ]
            if not all("by_corruption" in one for pair in measured for one in pair):
                continue  # earlier runs
            errors = np.array([[one["by_corruption"] for one in pair] for pair in measured])
            values = 100 * errors.mean(axis=0).T
            cells = (f"{mean:.2f}" for mean in values.mean(axis=0))
            rows.append((name, f"{severity + 1}", *cells, f"{within_subject_error(values):.2f}"))
    heads = ("objective", "severity", *_PAIR, "± within corruptions")
    return f"### Maps within corruptions: 000, figures 2 and 9\n\n{markdown_table(heads, rows)}\n"


def claims_table(
    by_objective: Mapping[str, Sequence[Story]], claims: Sequence[Claim] = CLAIMS
) -> str:
    """Return the claims with the verdict of runs by objective."""
    head = (
        "## Claims of the papers, and results here\n\n"
        "Both sides use the same seeds. A difference is *seen* if a paired t-test over the seeds "
        "has p < .05: with three seeds it is more than 4.3 standard errors, with five more than "
        "2.8. One seed has no test. Of 20 claims without a difference, one is expected to be seen."
    )
    rows = [
        (claim.paper, claim.text, f"{result.seeds}", result.difference, result.p, result.here)
        for claim in claims
        if (result := verdict(claim, by_objective)).here != "not run"
    ]
    heads = ("paper", "claim", "seeds", "difference, points", "p", "here")
    return f"{head}\n\n{markdown_table(heads, rows)}\n"


def _effects(by_objective: dict[str, list[Story]]) -> str:
    """Return the effect sizes of secondary losses on the ℓ2 ECE (paper 000, figure 1)."""
    head = (
        "## Effect sizes of secondary losses\n\n"
        "Cohen's d of the ℓ2 ECE: by how many standard deviations of the runs a secondary loss "
        "lowers it, before and after temperature scaling; negative if it rises. Paper 000 calls "
        "0.8 large. With few seeds d is uncertain, and too far from 0 on average."
    )
    rows = []
    for primary, names in (("CE", "CE + "), ("focal 3", "focal + ")):
        for name, stories in by_objective.items():
            pair = [by_objective.get(primary, []), stories]
            if not name.startswith(names) or min(map(len, pair)) < 2:
                continue
            sizes = [
                cohens_d(*([_test(map, "ece_l2_equal_mass")(run) for run in runs] for runs in pair))
                for map in ("", "TS")
            ]
            secondary = name.removeprefix(names)
            texts = (f"{size:+.1f}" for size in sizes)
            rows.append((primary, secondary, f"{min(map(len, pair))}", *texts))
    heads = ("primary", "secondary", "seeds", "d", "d after TS")
    return f"{head}\n\n{markdown_table(heads, rows)}\n"


def _by_objective(stories: Sequence[Story]) -> dict[str, list[Story]]:
    """Return the runs that have not diverged by objective."""
    names = dict.fromkeys(story["objective"] for story in stories)
    measured = [story for story in stories if "measured" in story]
    return {name: [story for story in measured if story["objective"] == name] for name in names}


def _command() -> str:
    return f"python -m benchmarks.training {shlex.join(sys.argv[1:])}".rstrip()


def main() -> None:
    """Write claims and effect sizes of the named files again."""
    for name in sys.argv[1:]:
        path = Path(name)
        finished = _by_objective(json.loads(path.read_text())["runs"])
        page = path.with_suffix(".md")
        head = page.read_text().split("## Claims of the papers")[0]
        write_atomically(
            page, "\n".join([head + claims_table(finished), _effects(finished)]).encode()
        )


if __name__ == "__main__":
    main()
