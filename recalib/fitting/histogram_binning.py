"""Histogram binning: edges from the rows, and the smoothed share of hits in each bin.

Legend: K classes, B bins, P the next power of two.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import scipy

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import Groups
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    absence_warnings,
    first_temperature,
    with_nll,
)
from recalib.maps.base import STEP
from recalib.maps.histogram_binning import HistogramBinning
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.stats.groups import group_sums

#: Bins with fewer rows than this give a warning.
_MIN_ROWS = 5
#: Maximum log-odds of a bin without rows: a probability of 1 - 2e-9.
_MAX_ODDS = 20.0


def fit_histogram_binning(problem: Problem) -> Solution:
    """Return the edges and values of a `HistogramBinning`."""
    map = cast(HistogramBinning, problem.map)
    single = first_temperature(problem, of_classes=not map.preserves_accuracy)
    if map.target == "one_vs_rest":
        solution = _each_class(problem, single.temperature, map)
    else:
        solution = histogram_steps(problem.rows.groups(single.temperature, map.target), map)
    return with_nll(problem, single.before(solution))


def histogram_steps(groups: Groups, map: HistogramBinning) -> Solution:
    """Return the edges and values of the only curve, in log-odds."""
    edges, share, rows = bin_rows(groups, groups.rows, map)
    sparse_bins = int((rows < _MIN_ROWS).sum())
    text = f"{sparse_bins} of {len(rows)} bins hold fewer than {_MIN_ROWS} rows"
    parameters = {"edges": edges, "values": np.asarray(scipy.special.logit(share))}
    return Solution(parameters, warnings=(text,) if sparse_bins else ())


def bin_rows(
    groups: Groups, mass: Numbers, map: HistogramBinning
) -> tuple[Numbers, Numbers, Numbers]:
    """Return edges (P − 1), the share of hits (P) and the number of rows (B) of each bin."""
    base_rate = groups.base_rate if map.target == "positive_class" else None
    inner = _edges(groups, mass, map)
    bins = np.searchsorted(inner, groups.odds, side="right")
    count = len(inner) + 1
    of_group = groups.rows, groups.hits, groups.rows * groups.probability
    rows, hits, sums = (group_sums(bins, weights, count) for weights in of_group)
    means = np.divide(sums, rows, out=_middles(inner), where=rows > 0)
    share = np.where(rows > 0, share_of_hits(hits, rows, means, base_rate), means)
    cells = next_power_of_two(map.bins)
    return pad_table(inner, cells - 1, 1.0), pad_table(share, cells), rows


def share_of_hits(
    hits: Numbers, rows: Numbers, probability: Numbers, base_rate: float | None = None
) -> Numbers:
    """Return (hits + added) / (rows + 1), strictly between 0 and 1.

    The added row is a hit with the predicted probability, at most ½. In a low bin it must not raise
    all of a thousand classes; in a high bin it must not confirm a probability of 1. Of two classes
    it is a hit with the base rate, so that bins together keep it, also if predictions do not.
    """
    added = np.minimum(probability, 0.5) if base_rate is None else base_rate
    return np.asarray((hits + added) / (rows + 1.0))


def _edges(groups: Groups, mass: Numbers, map: HistogramBinning) -> Numbers:
    """Return the inner edges (B − 1), at least one, and `STEP` or more apart."""
    parts = np.arange(1, map.bins) / map.bins
    if map.binning == "equal_width":
        return np.asarray(scipy.special.logit(parts))
    cumulative = np.cumsum(mass)
    # Half-way between two groups, so that no row of the fit lies on an edge.
    last = np.searchsorted(cumulative, parts * cumulative[-1] * (1 - 1e-9))
    last = np.unique(last[last < len(mass) - 1])
    middles = (groups.odds[last] + groups.odds[last + 1]) / 2
    edges: list[float] = []
    for edge in middles.tolist():
        if not edges or edge >= edges[-1] + STEP:
            edges.append(edge)
    # All rows are in one bin: one edge above them, and an empty bin.
    return np.array(edges or [groups.odds[-1] + 1.0])


def _middles(inner: Numbers) -> Numbers:
    """Return the probability at the middle of each bin in log-odds; outer bins are 2 wide."""
    around = np.concatenate([[inner[0] - 2.0], inner, [inner[-1] + 2.0]])
    middles = np.minimum((around[1:] + around[:-1]) / 2, _MAX_ODDS)
    return np.asarray(scipy.special.expit(middles))


def _each_class(problem: Problem, temperature: float, map: HistogramBinning) -> Solution:
    classes, cells = problem.classes, next_power_of_two(map.bins)
    edges, values = np.empty((classes, cells - 1)), np.empty((classes, cells))
    absent = 0
    for k, groups in enumerate(problem.rows.class_groups(temperature)):
        if groups.hits.any():
            edges[k], values[k] = class_steps(groups, map)
        else:
            edges[k], values[k] = absent_class_steps(groups, map)
            absent += 1
    warnings = absence_warnings(absent, classes)
    return Solution({"edges": edges, "values": values}, warnings=warnings)


def class_steps(groups: Groups, map: HistogramBinning) -> tuple[Numbers, Numbers]:
    """Return the edges and values of one class."""
    mass = groups.rows * groups.probability * (1 - groups.probability)
    edges, share, _ = bin_rows(groups, mass, map)
    return edges, np.log(share)


def absent_class_steps(groups: Groups, map: HistogramBinning) -> tuple[Numbers, Numbers]:
    """Return equal steps that approximate the identity, for a class without labels."""
    lowest, highest = float(groups.odds[0]), float(groups.odds[-1])
    cells = next_power_of_two(map.bins)
    edges = np.linspace(lowest, max(highest, lowest + cells * STEP * 2), cells + 1)
    return edges[1:-1], np.asarray(scipy.special.log_expit((edges[1:] + edges[:-1]) / 2))
