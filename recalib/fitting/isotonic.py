"""Isotonic calibration: pool adjacent violators, smooth each block, and thin the knots.

Legend: K classes, B blocks, P the power of two of the map's knots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import scipy

from recalib.core.arrays import Numbers
from recalib.fitting.histogram_binning import share_of_hits
from recalib.fitting.log_odds import Groups
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    CalibratedRows,
    absence_warnings,
    first_temperature,
    with_nll,
)
from recalib.maps.base import STEP
from recalib.maps.isotonic import LEAST, Isotonic
from recalib.maps.lookup_table import next_power_of_two, pad_table

#: Maximum slope in log-odds. A slope of 1 is ideal after temperature scaling; a slope of 10 turns
#: the float32 rounding error of a logit of 30 into one part in 10,000.
_MAX_SLOPE = 10.0


@dataclass(frozen=True)
class Blocks:
    """Neighbouring rows with one share of hits, (B,) each."""

    #: Ascending: the mean log-odds of each block.
    odds: Numbers
    #: Non-decreasing, strictly between 0 and 1.
    share: Numbers
    rows: Numbers

    def merge(self, i: int) -> Blocks:
        """Return the blocks with block i + 1 pooled into block i."""
        first, second = self.rows[i], self.rows[i + 1]
        total = first + second

        # Slices take a tenth of the time of `np.delete`, which counts for hundreds of merges.
        def pool(values: Numbers, value: float) -> Numbers:
            return np.concatenate([values[:i], [value], values[i + 2 :]])

        def mean(values: Numbers) -> Numbers:
            return pool(values, (values[i] * first + values[i + 1] * second) / total)

        return Blocks(mean(self.odds), mean(self.share), pool(self.rows, total))


def fit_isotonic(problem: Problem) -> Solution:
    """Return the knots and values of an `Isotonic`."""
    map = cast(Isotonic, problem.map)
    single = first_temperature(problem, of_classes=not map.preserves_accuracy)
    if map.target == "one_vs_rest":
        solution = single.before(_each_class(problem, single.temperature, map))
    else:
        groups = problem.rows.groups(single.temperature, map.target)
        solution = single.before(isotonic_curve(groups, map))
    return solution if np.isfinite(solution.objective) else with_nll(problem, solution)


def isotonic_curve(groups: Groups, map: Isotonic) -> Solution:
    """Return the knots and values of the only curve, in log-odds."""
    length = next_power_of_two(map.knots) + 1
    base_rate = groups.base_rate if map.target == "positive_class" else None
    blocks = _blocks_of(groups, map, base_rate)
    values = blocks.share if map.centred else scipy.special.logit(blocks.share)
    parameters = {"knots": pad_table(blocks.odds, length, 1.0), "values": pad_table(values, length)}
    text = "no rise of hits with the log-odds: all rows get the same probability"
    return Solution(parameters, warnings=(text,) if len(blocks.odds) == 1 else ())


def _blocks_of(groups: Groups, map: Isotonic, base_rate: float | None = None) -> Blocks:
    blocks = isotonic_blocks(groups, base_rate, centred=map.centred)
    return merge_blocks(blocks, map.knots, centred=map.centred)


def isotonic_blocks(
    groups: Groups, base_rate: float | None = None, *, centred: bool = False
) -> Blocks:
    """Return the non-decreasing blocks of the isotonic regression.

    Their shares are `share_of_hits`, or those of the regression if they are `centred`.
    """
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
    if centred:
        return Blocks(odds / rows, hits / rows, rows)
    smooth = share_of_hits(hits, rows, probability / rows, base_rate)
    # Smoothing changes small blocks more than large ones, so it may break the order.
    share = scipy.optimize.isotonic_regression(smooth, weights=rows + 1.0).x
    return Blocks(odds / rows, share, rows)


def merge_blocks(blocks: Blocks, max_blocks: int, *, centred: bool = False) -> Blocks:
    """Return at most `max_blocks` blocks, merged so that none are too close or too steep.

    The slope is that of the log-odds of shares, or of the shares if they are `centred`.
    """
    while len(blocks.odds) > 1:
        odds = blocks.odds
        values = blocks.share if centred else scipy.special.logit(blocks.share)
        gaps, rises = odds[1:] - odds[:-1], values[1:] - values[:-1]
        excess = np.maximum(rises / (gaps * _MAX_SLOPE), STEP / gaps)
        if (excess > 1).any():
            blocks = blocks.merge(int(np.argmax(excess)))
        elif len(blocks.odds) > max_blocks:
            a, b = blocks.rows[1:], blocks.rows[:-1]
            blocks = blocks.merge(int(np.argmin(a * b / (a + b) * np.diff(blocks.share) ** 2)))
        else:
            break
    return blocks


def class_curve(groups: Groups, map: Isotonic) -> tuple[Numbers, Numbers]:
    """Return the knots and values of one class."""
    length = next_power_of_two(map.knots) + 1
    blocks = _blocks_of(groups, map)
    values = blocks.share if map.centred else np.log(blocks.share)
    return pad_table(blocks.odds, length, 1.0), pad_table(values, length)


def absent_class_curve(groups: Groups, map: Isotonic) -> tuple[Numbers, Numbers]:
    """Return knots and values of temperature scaling, for a class without labels."""
    lowest, highest = float(groups.odds[0]), float(groups.odds[-1])
    length = next_power_of_two(map.knots) + 1
    knots = np.linspace(lowest, max(highest, lowest + 2 * STEP * length), length)
    curve = scipy.special.expit if map.centred else scipy.special.log_expit
    return knots, np.asarray(curve(knots))


def _each_class(problem: Problem, temperature: float, map: Isotonic) -> Solution:
    """Return the curves of all classes; of rows in memory with their objective."""
    rows, length = problem.rows, next_power_of_two(map.knots) + 1
    knots, values = np.empty((2, problem.classes, length))
    absent = 0
    calibrated = None if rows.in_memory is None else CalibratedRows(rows.in_memory)
    for k, groups in enumerate(rows.class_groups(temperature)):
        if groups.hits.any():
            knots[k], values[k] = class_curve(groups, map)
        else:
            knots[k], values[k] = absent_class_curve(groups, map)
            absent += 1
        if calibrated is not None:
            # Three times as fast as the map of the rows, because these odds ascend.
            curve = np.interp(groups.odds, knots[k], values[k])
            log_p = np.log(np.maximum(curve, LEAST)) if map.centred else curve
            calibrated.add(k, groups.of_rows(log_p))
    solution = Solution(
        {"knots": knots, "values": values}, warnings=absence_warnings(absent, problem.classes)
    )
    if calibrated is None:
        return solution
    return replace(solution, objective=calibrated.nll, confidences=calibrated.confidences)
