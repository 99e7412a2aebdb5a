"""Isotonic calibration: pool adjacent violators, smooth each block, and thin the knots.

Legend: K classes, B blocks, P the power of two of the map's knots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.fitting.histogram_binning import share_of_hits
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    CalibratedRows,
    Groups,
    ScaledRows,
    group_by_odds,
    make_solution,
)
from recalib.maps.base import STEP
from recalib.maps.isotonic import Isotonic
from recalib.maps.lookup_table import next_power_of_two, pad_table

__all__ = ["Blocks", "fit_isotonic", "isotonic_blocks", "merge_blocks"]

#: Maximum slope in log-odds. A slope of 1 is ideal after temperature scaling; a slope of 10 turns
#: the float32 rounding error of a logit of 30 into one part in 10,000.
_MAX_SLOPE = 10.0

_Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Blocks:
    """Neighbouring rows with one share of hits, (B,) each."""

    #: Ascending: the mean log-odds of each block.
    odds: _Vector
    #: Non-decreasing, strictly between 0 and 1.
    share: _Vector
    rows: _Vector

    def merged(self, i: int) -> Blocks:
        """Return the blocks with block i + 1 pooled into block i."""
        total = self.rows[i] + self.rows[i + 1]
        pooled = [np.delete(values, i + 1) for values in (self.odds, self.share, self.rows)]
        for target, source in zip(pooled, (self.odds, self.share), strict=False):
            target[i] = (source[i] * self.rows[i] + source[i + 1] * self.rows[i + 1]) / total
        pooled[2][i] = total
        return Blocks(*pooled)


def fit_isotonic(problem: Problem) -> Solution:
    """Return the knots and values of an `Isotonic`."""
    map = cast(Isotonic, problem.map)
    scaled = ScaledRows.from_problem(problem)
    length = next_power_of_two(map.knots) + 1
    if map.target == "one_vs_rest":
        return _each_class(scaled, map.knots, length)
    groups = group_by_odds(scaled.odds, scaled.correct, scaled.weights)
    blocks = merge_blocks(isotonic_blocks(groups), map.knots)
    values = scipy.special.logit(blocks.share)
    warnings = []
    if len(blocks.odds) == 1:
        warnings.append("no rise of accuracy with confidence: all rows get the same confidence")
    parameters = {"knots": pad_table(blocks.odds, length, 1.0), "values": pad_table(values, length)}
    return make_solution(scaled, parameters, warnings)


def isotonic_blocks(groups: Groups) -> Blocks:
    """Return the smoothed, non-decreasing blocks of the isotonic regression."""
    pooled = scipy.optimize.isotonic_regression(groups.hits / groups.rows, weights=groups.rows)
    # The tolerance joins neighbours whose means differ only by rounding.
    starts = np.flatnonzero(np.diff(pooled.x, prepend=-1.0) > 1e-9)
    rows, hits, odds, probability = (
        np.add.reduceat(values, starts)
        for values in (
            groups.rows,
            groups.hits,
            groups.rows * groups.odds,
            groups.rows * groups.probability,
        )
    )
    smooth = share_of_hits(hits, rows, probability / rows)
    # Smoothing changes small blocks more than large ones, so it may break the order.
    share = scipy.optimize.isotonic_regression(smooth, weights=rows + 1.0).x
    return Blocks(odds / rows, share, rows)


def merge_blocks(blocks: Blocks, max_blocks: int) -> Blocks:
    """Return at most `most` blocks, merged so that none are too close or too steep."""
    while len(blocks.odds) > 1:
        gaps = np.diff(blocks.odds)
        rises = np.diff(scipy.special.logit(blocks.share))
        excess = np.maximum(rises / (gaps * _MAX_SLOPE), STEP / gaps)
        if (excess > 1).any():
            blocks = blocks.merged(int(np.argmax(excess)))
        elif len(blocks.odds) > max_blocks:
            a, b = blocks.rows[1:], blocks.rows[:-1]
            blocks = blocks.merged(int(np.argmin(a * b / (a + b) * np.diff(blocks.share) ** 2)))
        else:
            break
    return blocks


def _each_class(scaled: ScaledRows, max_blocks: int, length: int) -> Solution:
    classes = scaled.problem.classes
    knots, values = np.empty((2, classes, length))
    absent = 0
    calibrated = CalibratedRows(scaled)
    for k, odds, hits in scaled.iter_classes():
        group = None
        if (scaled.weights[hits] > 0).any():
            groups = group_by_odds(odds, hits, scaled.weights)
            blocks = merge_blocks(isotonic_blocks(groups), max_blocks)
            knots[k] = pad_table(blocks.odds, length, 1.0)
            values[k] = pad_table(np.log(blocks.share), length)
            group = groups.group
        else:
            low, high = float(odds.min()), float(odds.max())
            knots[k] = np.linspace(low, max(high, low + 2 * STEP * length), length)
            values[k] = scipy.special.log_expit(knots[k])
            absent += 1
        if group is None:
            log_p = np.interp(odds, knots[k], values[k])
        else:  # three times as fast, because these odds ascend
            log_p = np.interp(groups.odds, knots[k], values[k])[group]
        calibrated.add(k, log_p, hits)
    text = (
        f"{absent} of {classes} classes have no label: theirs stay as temperature scaling has them"
    )
    warnings = [text] if absent else []
    return make_solution(scaled, {"knots": knots, "values": values}, warnings, calibrated)
