"""The runs as tables, in Markdown for people and in JSON."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.claims import CLAIMS, has_learnt, verdict
from benchmarks.training.measuring import MAPS
from benchmarks.training.running import Budget, Finished
from recalib.files import write_atomically
from training.data import Splits
from training.data.corruption import CORRUPTIONS

__all__ = ["cell", "write"]

Story = dict[str, Any]
Value = Callable[[Story], float]
_METRICS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_l2_equal_mass": "ℓ2 ECE",
    "ece_equal_mass": "AdaECE",
    "classwise_ece": "cwECE",
    "nll": "NLL",
}


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
    write_atomically(path.with_suffix(".json"), json.dumps(document, indent=1).encode())
    write_atomically(path.with_suffix(".md"), _markdown(stories, budget, splits).encode())


def _markdown(stories: Sequence[Story], budget: Budget, splits: Splits) -> str:
    by_objective: dict[str, list[Story]] = {}
    for story in stories:
        by_objective.setdefault(story["objective"], []).append(story)
    finished = {
        name: [story for story in runs if "measured" in story]
        for name, runs in by_objective.items()
    }
    parts = [_head(stories, budget, splits)]
    for name in MAPS:
        parts.append(f"## Test, {f'after {name}' if name else 'the networks themselves'}\n")
        columns = {title: _test(name, metric) for metric, title in _METRICS.items()}
        if not name:
            columns = {"training accuracy": _training_accuracy, **columns}
        parts.append(_table(finished, columns))
    parts.append(_shift_head(budget))
    for name in MAPS:
        parts.append(f"### {f'After {name}' if name else 'The networks themselves'}\n")
        columns = {f"{severity + 1}": _shifted(name, severity) for severity in range(5)}
        parts.append(_table(finished, columns))
    diverged = [story for story in stories if "diverged" in story]
    if diverged:
        parts.append("## Diverged\n")
        parts += [
            f"- {story['objective']}, seed {story['seed']}: {story['diverged']}"
            for story in diverged
        ]
        parts.append("")
    parts.append(_claims(finished))
    return "\n".join(parts)


def _head(stories: Sequence[Story], budget: Budget, splits: Splits) -> str:
    devices = ", ".join(sorted({story["device"] for story in stories}))
    minutes = sum(story["processor_seconds"] for story in stories) / 60
    width = f" of width {budget.width}" if budget.width else ""
    title = "# Training losses on CIFAR-10"
    if budget.under_trained:
        title += ": under-trained"
    lines = [
        title,
        "",
        f"`{_command()}`",
        "",
        f"{budget.model}{width} on {len(splits.train)} images of {budget.size}x{budget.size}, "
        f"{budget.epochs} epochs in batches of {budget.batch}, rate {budget.rate or 0.1:g}; "
        f"{len(splits.validation)} validation and {len(splits.test)} test images. "
        f"{len(stories)} runs on {devices}: {minutes:.0f} minutes of processor time. "
        "Objectives and their options: `objectives.py`; all else is the same: `running.py`.",
        "",
    ]
    if budget.under_trained:
        lines += [
            "**Under-trained**: the papers train networks with 100 times the weights on 45,000 "
            "images of 32x32 for 200 to 350 epochs, to accuracies of 95%. Like theirs, these "
            "small networks fit their training images far better than other images, and are "
            "overconfident. A claim that does not hold here is not refuted.",
            "",
        ]
    lines += [
        "In percent, NLL in nats; the mean over seeds, with its standard error if there are "
        "several. †: has not learnt at this rate and length: its accuracy is below twice that of "
        "chance, so its calibration is not meaningful.",
        "",
    ]
    return "\n".join(lines)


def _table(by_objective: dict[str, list[Story]], columns: dict[str, Value]) -> str:
    lines = [
        "| objective | seeds | " + " | ".join(columns) + " |",
        "|---|--:|" + "--:|" * len(columns),
    ]
    for name, stories in by_objective.items():
        if stories:
            cells = [cell([of(story) for story in stories], title) for title, of in columns.items()]
            mark = "" if all(has_learnt(story) for story in stories) else " †"
            lines.append(f"| {name}{mark} | {len(stories)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


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


def _training_accuracy(story: Story) -> float:
    return float(story["history"][-1]["train"]["accuracy"])


def _shift_head(budget: Budget) -> str:
    return "\n".join(
        [
            "## Under shift: ℓ2 ECE at severities 1 to 5",
            "",
            f"The mean over {len(CORRUPTIONS)} corruptions of {budget.shifted} test images, at the "
            "size that the networks see. The maps are fitted to clean validation images.",
            "",
        ]
    )


def _claims(by_objective: dict[str, list[Story]]) -> str:
    lines = [
        "## Claims of the papers, and results here",
        "",
        "Both sides use the same seeds. A difference is *seen* if it has the same sign for every "
        "seed and, with several seeds, is more than twice its standard error. With one seed it "
        "must exceed three points, the distance between two seeds of one objective.",
        "",
        "| paper | claim | seeds | difference, points | here |",
        "|---|---|--:|--:|---|",
    ]
    for claim in CLAIMS:
        result = verdict(claim, by_objective)
        cells = (claim.paper, claim.text, result.seeds, result.difference, result.here)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _command() -> str:
    return f"python -m benchmarks.training {shlex.join(sys.argv[1:])}".rstrip()
