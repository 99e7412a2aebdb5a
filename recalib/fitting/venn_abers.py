"""Venn-Abers calibration: the tables of each class, of all rows or of folds.

Legend: K classes, P the power of two of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from recalib.errors import InputError
from recalib.fitting.log_odds import Groups
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.rows import Rows
from recalib.fitting.temperature_preprocessing import first_temperature, with_nll
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.maps.venn_abers import VennAbers
from recalib.sets.venn_abers import StepTable, cross_table, inductive_table


def fit_venn_abers(problem: Problem) -> Solution:
    """Return the tables of a `VennAbers`.

    Raises
    ------
    InputError: folds of rows in several files, or more folds than rows.
    """
    map = cast(VennAbers, problem.map)
    single = first_temperature(problem, of_classes=True)
    parts = [_groups(rows, single.temperature, map) for rows in _parts(problem, map.folds)]
    is_narrow = problem.logits.dtype != np.float64
    tables = [_table(of_parts, map, is_narrow) for of_parts in zip(*parts, strict=True)]
    cells = next_power_of_two(max(len(table.edges) for table in tables))
    names = ("edges", "log_q0", "log_p1")
    padded = {
        name: np.stack([pad_table(getattr(table, name), cells) for table in tables])
        for name in names
    }
    if map.target == "positive_class":
        padded = {name: table[0] for name, table in padded.items()}
    return with_nll(problem, single.before(Solution(padded)))


def _parts(problem: Problem, folds: int | None) -> list[Rows]:
    """Return the rows of each fold, or all rows."""
    if folds is None:
        return [problem.rows]
    rows = len(problem.labels)
    if problem.source is not None or rows < folds:
        found = f"{folds} with " + (
            "several files" if problem.source is not None else f"{rows} rows"
        )
        raise InputError("options.folds", found=found, accepted="at most the rows of one file")
    fold = np.random.default_rng(0).permutation(rows) % folds
    return [problem.subset(fold == k).rows for k in range(folds)]


def _groups(rows: Rows, temperature: float, map: VennAbers) -> Iterator[Groups]:
    """Yield the groups of each table."""
    if map.target == "positive_class":
        yield rows.groups(temperature, map.target)
    else:
        yield from rows.class_groups(temperature)


def _table(parts: Sequence[Groups], map: VennAbers, is_narrow: bool) -> StepTable:
    """Return the table of one class from the groups of each fold."""
    tables = [
        inductive_table(
            groups.odds, groups.rows, groups.hits, is_rounded=is_narrow or groups.is_coarse
        )
        for groups in parts
    ]
    table = tables[0] if len(tables) == 1 else cross_table(tables)
    return table.thin(map.steps or len(table.edges))
