"""Objectives of all rows of some fragments, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from recalib.files import Input
from recalib.files.fragments import Fragment
from recalib.fitting.odds_sums import OddsSums
from recalib.fitting.search import confidences_of, gaps_below_top
from recalib.fitting.temperature_preprocessing import top_odds
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.objectives.base import TopLabelObjective
from recalib.ops import NumpyOps
from recalib.scale.rows import FragmentRows, iter_chunks

Numbers = NDArray[np.float64]

#: Numbers of a block of rows: 8 MB of float64.
_BLOCK = 1_000_000
#: Rows whose log-odds are merged at a time: a merge sorts up to 2²⁰ sums again.
_MERGED_ROWS = 1 << 18


def objective_at(
    rows: FragmentRows, weight: float, map: Map, objective: Objective, parameters: Parameters
) -> float:
    """Return the objective of rows with the sum of weights `weight`, without the map's penalty."""
    return float(objectives_at(rows, weight, map, objective, [parameters])[0])


def objectives_at(
    rows: FragmentRows, weight: float, map: Map, objective: Objective, trials: Sequence[Parameters]
) -> Numbers:
    """Return `objective_at` for each of some parameters, in one pass."""
    sums = rows.sum(partial(_objectives, rows.kind, map, objective, trials))
    return _of_sums(objective, sums, weight)


def binned_errors(
    rows: FragmentRows, weight: float, size: int, objective: TopLabelObjective, points: Numbers
) -> Numbers:
    """Return the objective at log temperatures (n,), in one pass; `size` is N K."""
    sums = rows.sum(partial(_bin_fragment, rows.kind, size, objective, np.exp(points)))
    return _of_sums(objective, sums, weight)


def odds_sums(rows: FragmentRows, temperature: float, *, positive_class: bool = False) -> OddsSums:
    """Return rows and hits by the log-odds of the prediction, or of class 1 of two."""
    parts = rows.map(partial(_odds, rows.kind, temperature, positive_class))
    total = next(parts)
    for part in parts:
        total = total.merge(part)
    return total


def _of_sums(objective: Objective, sums: Numbers, weight: float) -> Numbers:
    values = [objective.of_sums(NumpyOps(), tuple(of_trial), weight) for of_trial in sums]
    return np.array(values, np.float64)


def _objectives(
    kind: Input, map: Map, objective: Objective, trials: Sequence[Parameters], fragment: Fragment
) -> Numbers:
    ops = NumpyOps()
    total: Numbers | float = 0.0
    with fragment.open(kind) as file:
        step = max(1, _BLOCK // file.classes)
        for logits, labels, w in iter_chunks(file, kind):
            for start in range(0, len(labels), step):
                z, y = logits[start : start + step].astype(np.float64), labels[start : start + step]
                weights = np.ones(len(y)) if w is None else w[start : start + step]
                of_trials = [
                    np.stack(objective.sums(ops, map.log_probabilities(ops, z, trial), y, weights))
                    for trial in trials
                ]
                total = total + np.stack(of_trials)
    return cast(Numbers, total)


def _bin_fragment(
    kind: Input, size: int, objective: TopLabelObjective, temperatures: Numbers, fragment: Fragment
) -> Numbers:
    ops = NumpyOps()
    total: Numbers | float = 0.0
    with fragment.open(kind) as file:
        step = max(1, _BLOCK // file.classes)
        for logits, labels, w in iter_chunks(file, kind):
            for start in range(0, len(labels), step):
                z, y = logits[start : start + step], labels[start : start + step]
                correct = ops.is_top_label(z, y)
                weights = np.ones(len(y)) if w is None else w[start : start + step]
                confidences = confidences_of(gaps_below_top(z, size))
                of_points = [
                    np.stack(objective.sums_of_confidences(ops, confidences(t), correct, weights))
                    for t in temperatures.tolist()
                ]
                total = total + np.stack(of_points)
    return cast(Numbers, total)


def _odds(kind: Input, temperature: float, positive_class: bool, fragment: Fragment) -> OddsSums:
    total = OddsSums.of_rows(np.empty(0), np.empty(0, bool))
    blocks: list[tuple[Numbers, NDArray[np.bool_], Numbers]] = []
    count = 0

    def merged() -> OddsSums:
        odds, hits, weights = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        return total.merge(OddsSums.of_rows(odds, hits, weights=weights))

    with fragment.open(kind) as file:
        step = max(1, _BLOCK // file.classes)
        for logits, labels, w in iter_chunks(file, kind):
            for start in range(0, len(labels), step):
                block = slice(start, start + step)
                top, odds, _ = top_odds(logits[block], temperature)
                if positive_class:
                    odds, top = np.where(top == 1, odds, -odds), np.ones_like(top)
                weights = np.ones(len(odds)) if w is None else w[block]
                blocks.append((odds, top == labels[block], weights))
                count += len(top)
                if count >= _MERGED_ROWS:
                    total, blocks, count = merged(), [], 0
    return merged() if blocks else total
