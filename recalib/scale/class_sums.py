"""Sums over the rows of many files for maps of each class against the rest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from recalib.files import Input
from recalib.files.fragments import Fragment
from recalib.fitting.beta import CurveLosses, beta_inputs, curve_losses
from recalib.fitting.odds_sums import OF_CLASSES, OddsSums
from recalib.fitting.problem import TemperatureFit
from recalib.fitting.temperature_preprocessing import (
    class_odds,
    log_odds_sums,
    unit_of_log_odds,
)
from recalib.scale.rows import FragmentRows, RowSurvey, iter_chunks

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]

#: Numbers of a block of rows; a block of log-odds takes about ten arrays of it.
_BLOCK = 500_000
#: Groups of all classes that a pass sums: 25 MB for a fragment.
_MAX_GROUPS = 1 << 20
#: Log-odds that wait to be merged.
_MERGED_ODDS = 1 << 21


def class_odds_sums(
    rows: FragmentRows, count: int, classes: int, temperature: float
) -> Iterator[OddsSums]:
    """Yield the rows and hits of each class by its log-odds.

    One pass computes the sums of as many classes as memory allows.

    Parameters
    ----------
    count: N.
    """
    step = max(1, _MAX_GROUPS // min(count, OF_CLASSES.max_exact))
    for start in range(0, classes, step):
        indices = np.arange(start, min(start + step, classes))
        parts = rows.map(partial(_odds, rows.kind, temperature, indices))
        total = next(parts)
        for part in parts:
            total = [a.merge(b) for a, b in zip(total, part, strict=True)]
        yield from total


def beta_losses(
    rows: FragmentRows, temperature: float, classes: Indices, curves: Numbers
) -> CurveLosses:
    """Return the losses of `Beta` curves (C, 3) of some classes (C,), in one pass."""
    sums = rows.sum(partial(_losses, rows.kind, temperature, classes, curves))
    return CurveLosses(sums[:, 0], sums[:, 1:4], sums[:, 4:].reshape(-1, 3, 3))


def fit_unit(rows: FragmentRows, survey: RowSurvey, single: TemperatureFit) -> TemperatureFit:
    """Return the best single temperature, of two classes `unit_of_log_odds`, by another pass."""
    if survey.classes != 2:
        return single
    return unit_of_log_odds(single, rows.sum(partial(_moments, rows.kind)))


def _moments(kind: Input, fragment: Fragment) -> Numbers:
    with fragment.open(kind) as file:
        parts = [log_odds_sums(z, w) for z, _, w in iter_chunks(file, kind)]
    return np.asarray(np.sum(parts, axis=0))


def _odds(kind: Input, temperature: float, classes: Indices, fragment: Fragment) -> list[OddsSums]:
    no_rows = OddsSums.of_rows(np.empty(0), np.empty(0, bool), OF_CLASSES)
    totals = [no_rows] * len(classes)
    odds: list[Numbers] = []
    labels: list[Indices] = []
    weights: list[Numbers] = []

    def merge() -> None:
        of_classes, y = np.concatenate(odds, axis=1), np.concatenate(labels)
        rows = np.concatenate(weights) if weights else None
        for i, k in enumerate(classes):
            part = OddsSums.of_rows(of_classes[i], y == k, OF_CLASSES, weights=rows)
            totals[i] = totals[i].merge(part)
        for waiting_rows in (odds, labels, weights):
            waiting_rows.clear()

    waiting = 0
    with fragment.open(kind) as file:
        step = max(1, _BLOCK // file.classes)
        for z, y, w in iter_chunks(file, kind):
            for start in range(0, len(y), step):
                block = slice(start, start + step)
                odds.append(class_odds(z[block], temperature, classes))
                labels.append(y[block])
                if w is not None:
                    weights.append(w[block])
                waiting += odds[-1].size
                if waiting >= _MERGED_ODDS:
                    merge()
                    waiting = 0
    if odds:
        merge()
    return totals


def _losses(
    kind: Input, temperature: float, classes: Indices, curves: Numbers, fragment: Fragment
) -> Numbers:
    """Return the losses as (C, 13): the value, the slope and the flat bend."""
    total = np.zeros((len(classes), 13))
    with fragment.open(kind) as file:
        step = max(1, _BLOCK // file.classes)
        for z, y, w in iter_chunks(file, kind):
            for start in range(0, len(y), step):
                block = slice(start, start + step)
                inputs = beta_inputs(class_odds(z[block], temperature, classes))
                hits = (y[block] == classes[:, None]).astype(np.float64)
                counts = np.ones_like(hits)
                if w is not None:
                    counts, hits = counts * w[block], hits * w[block]
                losses = curve_losses(inputs, counts, hits, curves)
                flat = losses.bend.reshape(-1, 9)
                total += np.concatenate([losses.value[:, None], losses.slope, flat], axis=1)
    return total
