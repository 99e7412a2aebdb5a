"""Rows and hits by log-odds, summed over the blocks of a fragment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import OddsSums, Resolution, class_odds, top_odds
from recalib.fitting.rows import Block

#: Numbers of a block of rows; a block of log-odds takes about ten arrays of it.
_BLOCK = 500_000
#: Log-odds that wait to be merged: a merge sorts up to 2²⁰ sums again.
_MERGED_ODDS = 1 << 21

#: Returns log-odds and hits, (C, n) each.
_OddsOf = Callable[[Block], tuple[Numbers, NDArray[np.bool_]]]


def top_label_sums(
    temperature: float, target: str | None, resolution: Resolution, blocks: Iterable[Block]
) -> list[OddsSums]:
    """Return the sums of the prediction, or of class 1 of two for `positive_class`."""
    return _sum_odds(partial(_top_label, temperature, target), 1, resolution, blocks)


def class_sums(
    temperature: float, classes: NDArray[np.intp], resolution: Resolution, blocks: Iterable[Block]
) -> list[OddsSums]:
    """Return the sums of some classes (C,)."""
    odds_of = partial(_classes, temperature, classes)
    return _sum_odds(odds_of, len(classes), resolution, blocks)


def _top_label(
    temperature: float, target: str | None, block: Block
) -> tuple[Numbers, NDArray[np.bool_]]:
    top, odds, _ = top_odds(block.logits, temperature)
    if target == "positive_class":
        odds, top = np.where(top == 1, odds, -odds), np.ones_like(top)
    return odds[None], (top == block.labels)[None]


def _classes(
    temperature: float, classes: NDArray[np.intp], block: Block
) -> tuple[Numbers, NDArray[np.bool_]]:
    return class_odds(block.logits, temperature, classes), block.labels == classes[:, None]


def _sum_odds(
    odds_of: _OddsOf, count: int, resolution: Resolution, blocks: Iterable[Block]
) -> list[OddsSums]:
    totals = [OddsSums.of_rows(np.empty(0), np.empty(0, bool), resolution)] * count
    for odds, hits, weights in _batches(odds_of, blocks):
        parts = (
            OddsSums.of_rows(odds[i], hits[i], resolution, weights=weights) for i in range(count)
        )
        totals = [total.merge(part) for total, part in zip(totals, parts, strict=True)]
    return totals


def _batches(
    odds_of: _OddsOf, blocks: Iterable[Block]
) -> Iterator[tuple[Numbers, NDArray[np.bool_], Numbers]]:
    """Yield log-odds, hits and weights of many rows."""
    waiting: list[tuple[Numbers, NDArray[np.bool_], Numbers]] = []
    size = 0
    for block in blocks:
        for part in block.parts(max(1, _BLOCK // block.logits.shape[1])):
            waiting.append((*odds_of(part), part.counts))
            size += waiting[-1][0].size
            if size >= _MERGED_ODDS:
                yield _joined(waiting)
                waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(
    parts: list[tuple[Numbers, NDArray[np.bool_], Numbers]],
) -> tuple[Numbers, NDArray[np.bool_], Numbers]:
    odds, hits, weights = zip(*parts, strict=True)
    return np.concatenate(odds, axis=1), np.concatenate(hits, axis=1), np.concatenate(weights)
