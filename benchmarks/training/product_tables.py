"""The tables of `benchmarks.training.product`, in Markdown and in JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.training.claims import TITLES, Claim, Side, cohens_d, has_learnt
from benchmarks.training.table import cell as percent
from benchmarks.training.table import claims_table, markdown_table
from recalib.files import write_atomically

Story: TypeAlias = dict[str, Any]
_ERROR = "ece_l2_equal_mass"
#: ℓ2 ECE, after TS and after TS-SB-ECE, of a WRN-28-10 on CIFAR-10: paper 000, table 2. The runs of
#: S-AvUC and SB-ECE with NLL are interleaved.
PAPER = {
    "NLL": (5.59, 1.95, 1.16),
    "NLL + MMCE": (1.55, 1.09, 1.45),
    "NLL + AvUC": (5.27, 2.39, 1.30),
    "NLL + AvUC-GS": (4.94, 2.07, 1.31),
    "NLL + S-AvUC, interleaved": (5.87, 2.24, 1.20),
    "NLL + SB-ECE, interleaved": (5.84, 2.28, 1.27),
    "focal": (5.45, 2.69, 1.77),
    "focal + MMCE": (8.74, 3.13, 2.16),
    "focal + AvUC": (1.34, 2.53, 1.12),
    "focal + AvUC-GS": (1.39, 2.30, 1.46),
    "focal + S-AvUC": (1.58, 1.34, 1.05),
    "focal + SB-ECE": (1.19, 2.08, 1.38),
    "MSE": (6.58, 5.33, 4.43),
    "MSE + MMCE": (2.82, 3.23, 2.34),
    "MSE + AvUC": (3.64, 4.72, 4.01),
    "MSE + AvUC-GS": (5.44, 5.56, 5.20),
    "MSE + S-AvUC": (3.40, 1.87, 1.50),
    "MSE + SB-ECE": (4.37, 5.08, 4.26),
}
_PAPER_DATA = "CIFAR-10"
#: The gap of accuracy that table 1 of the paper allows.
_WITHIN = 0.01


@dataclass(frozen=True)
class Cell:
    """A row of the paper's table 2; `secondary` is empty where there is none."""

    data: str
    primary: str
    secondary: str
    interleaved: bool = False

    @property
    def name(self) -> str:
        """The objective, such as `NLL + SB-ECE, interleaved`."""
        parts = [self.primary, self.secondary] if self.secondary else [self.primary]
        return " + ".join(parts) + (", interleaved" if self.interleaved else "")


Runs: TypeAlias = Mapping[Cell, Sequence[Story]]


def write(path: Path, runs: Runs, arguments: Sequence[str]) -> None:
    """Write `path`.md and `path`.json."""
    document = [
        {**vars(cell), "runs": [_summary(story) for story in stories]}
        for cell, stories in _learnable(runs).items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(document, separators=(",", ":"))
    write_atomically(path.with_suffix(".json"), compact.encode())
    write_atomically(path.with_suffix(".md"), markdown(runs, arguments).encode())


def _summary(story: Story) -> dict[str, Any]:
    """Return what the tables show of a run; the run's file has all of it."""
    tests = {
        name: {metric: results["test"][metric] for metric in ("accuracy", "ece", _ERROR)}
        for name, results in story["measured"].items()
        if name != "validation"
    }
    train = story["history"][-1]["train"]
    return {
        "seed": story["seed"], "options": story["options"], "test": tests,
        "validation": story["measured"]["validation"], "training_ece": train["ece"],
        "processor_seconds": story["processor_seconds"],
    }  # fmt: skip


def markdown(runs: Runs, arguments: Sequence[str]) -> str:
    """Return all tables."""
    command = f"python -m benchmarks.training.product {shlex.join(arguments)}".rstrip()
    parts = [
        "# Product of primary and secondary losses (paper 000): small",
        f"`{command}`",
        "ℓ2 ECE of 15 bins of equal mass, in percent, on test rows: the mean over seeds, with its "
        "standard error. κ, T, β and the weight decay λ are tuned with the first seed on "
        "validation rows, to which the temperature is fitted too. TS fits it by NLL, TS-SB-ECE by "
        "SB-ECE. The paper trains WRN-28-10 for 200 epochs on all images.",
    ]
    runs = _learnable(runs)
    for data in dict.fromkeys(cell.data for cell in runs):
        here = {cell: stories for cell, stories in runs.items() if cell.data == data}
        parts += [
            f"## {data}",
            _cells_table(here),
            "### Memorisation (table 3)",
            "ECE of 15 bins of equal width, the mean over seeds, of test and training rows.",
            _memory(here),
        ]
        parts += ["### Best cell of each method (table 1)", best_methods(here)]
        by_name = {cell.name: stories for cell, stories in here.items()}
        table = claims_table(by_name, claims(here)).replace("## Claims", f"### {data}: claims")
        parts += [counts(here), table]
    parts += ["## Effect sizes (figure 1)", _effects(runs)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _learnable(runs: Runs) -> dict[Cell, list[Story]]:
    """Return the runs that have not diverged, of the cells that have any."""
    finished = {
        cell: [story for story in stories if "measured" in story] for cell, stories in runs.items()
    }
    return {cell: stories for cell, stories in finished.items() if stories}


def _values(stories: Sequence[Story], map: str, metric: str) -> list[float]:
    return [story["measured"][map]["test"][metric] for story in stories]


def _mean(stories: Sequence[Story], metric: str, map: str = "") -> float:
    return float(np.mean(_values(stories, map, metric)))


def _cells_table(runs: Runs) -> str:
    columns = (("", "accuracy"), ("", _ERROR), ("TS", _ERROR), ("TS-SB-ECE", _ERROR))
    heads = ["objective", "seeds", "options", "accuracy", "ECE", "ECE+TS", "ECE+TS-SB-ECE"]
    has_paper = any(cell.data == _PAPER_DATA for cell in runs)
    if has_paper:
        heads.append("paper: ECE, +TS, +TS-SB-ECE")
    rows = []
    for cell, stories in runs.items():
        values = [percent(_values(stories, *column), TITLES[column[1]]) for column in columns]
        mark = "" if all(has_learnt(story) for story in stories) else " †"
        row = [cell.name + mark, f"{len(stories)}", _options(stories[0]["options"]), *values]
        if has_paper:
            row.append(", ".join(f"{value:.2f}" for value in PAPER.get(cell.name, ())))
        rows.append(row)
    note = "\n\n†: less than 10 points more accurate than chance." if "†" in str(rows) else ""
    return markdown_table(heads, rows) + note


def _options(values: Mapping[str, float]) -> str:
    signs = {"kappa": "κ", "temperature": "T", "beta": "β", "weight_decay": "λ"}
    return ", ".join(f"{signs[name]} {value:g}" for name, value in values.items())


def _memory(runs: Runs) -> str:
    """Return the ECE of training and test rows of the primary losses; the paper's bins."""
    rows = []
    for cell, stories in runs.items():
        if not cell.secondary:
            train = float(np.mean([story["history"][-1]["train"]["ece"] for story in stories]))
            test = _mean(stories, "ece")
            rows.append((cell.name, f"{test:.2%}", f"{train:.2%}", f"{test / train:.1f}"))
    return markdown_table(("primary", "test ECE", "training ECE", "ratio"), rows)


def best_methods(runs: Runs) -> str:
    """Return the lowest ECE of each method among cells within a point of the best accuracy."""
    plain = [_mean(stories, "accuracy") for cell, stories in runs.items() if not cell.secondary]
    eligible = {
        cell: stories
        for cell, stories in runs.items()
        if _mean(stories, "accuracy") > max(plain) - _WITHIN
    }
    best: dict[str, Cell] = {}
    for cell in eligible:
        method = cell.secondary or cell.primary
        if method not in best or _mean(runs[cell], _ERROR) < _mean(runs[best[method]], _ERROR):
            best[method] = cell
    rows = [
        (method, cell.name, *(percent(_values(runs[cell], map, _ERROR), "") for map in ("", "TS")))
        for method, cell in best.items()
    ]
    return markdown_table(("method", "objective", "ECE", "ECE+TS"), rows)


def claims(runs: Runs) -> list[Claim]:
    """Return the paper's claims on the cells of a data set: table 2 where it has them.

    For other cells, secondary losses and TS-SB-ECE lower the ECE: figure 1 and appendix C.
    """
    parts = []
    for column, map in enumerate(("", "TS")):
        for cell in runs:
            if cell.secondary:
                sides = (Side(cell.name, map), Side(cell.primary, map))
                parts.append(_claim(cell, "000, figure 1", sides, (column, column)))
    for cell in runs:
        sides = (Side(cell.name, "TS-SB-ECE"), Side(cell.name, "TS"))
        parts.append(_claim(cell, "000, appendix C", sides, (2, 1)))
    return parts


def _claim(cell: Cell, source: str, sides: tuple[Side, Side], columns: tuple[int, int]) -> Claim:
    """Return that the first side is below the second, or as `PAPER` has these columns."""
    low, high = sides
    published = [PAPER.get(side.objective) for side in sides]
    if cell.data == _PAPER_DATA and published[0] and published[1]:
        source = "000, table 2"
        if published[0][columns[0]] > published[1][columns[1]]:
            low, high = high, low
    texts = [f"{side.objective}{f' after {side.map}' if side.map else ''}" for side in (low, high)]
    return Claim(source, f"{texts[0]} below {texts[1]}, ECE", low, high, _ERROR)


def counts(runs: Runs) -> str:
    """Return in how many cells TS-SB-ECE is below TS by the means; the paper has 35 of 42."""
    product = {cell: stories for cell, stories in runs.items() if not cell.interleaved}
    below = sum(
        _mean(stories, _ERROR, "TS-SB-ECE") < _mean(stories, _ERROR, "TS")
        for stories in product.values()
    )
    return (
        f"The mean ECE after TS-SB-ECE is below that after TS in {below} of {len(product)} cells."
    )


def _effects(runs: Runs) -> str:
    """Return Cohen's d of each secondary loss, the mean over data sets and primary losses."""
    sizes: dict[str, list[tuple[float, float]]] = {}
    for cell, stories in runs.items():
        plain = runs.get(Cell(cell.data, cell.primary, ""), ())
        if cell.secondary and min(len(plain), len(stories)) >= 2:
            pair = [
                cohens_d(_values(plain, map, _ERROR), _values(stories, map, _ERROR))
                for map in ("", "TS")
            ]
            name = cell.secondary + (", interleaved" if cell.interleaved else "")
            sizes.setdefault(name, []).append((pair[0], pair[1]))
    rows = [
        (name, f"{len(pairs)}", *(f"{value:+.1f}" for value in np.mean(pairs, axis=0)))
        for name, pairs in sizes.items()
    ]
    text = (
        "Cohen's d of the ECE: by how many standard deviations of the runs a secondary loss lowers "
        "it, before and after temperature scaling; the mean over data sets and primary losses."
    )
    return f"{text}\n\n{markdown_table(('secondary', 'pairs', 'd', 'd after TS'), rows)}"
