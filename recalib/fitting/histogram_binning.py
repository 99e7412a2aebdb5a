"""Histogram binning: edges from the rows, and in each bin the share of hits, smoothed.

Legend: K classes, B bins, P the next power of two.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    Groups,
    ScaledRows,
    group_by_odds,
    make_solution,
)
from recalib.maps.base import STEP
from recalib.maps.histogram_binning import HistogramBinning
from recalib.maps.lookup_table import next_power_of_two, pad_table

__all__ = ["bin_rows", "fit_histogram_binning", "share_of_hits"]

#: A share of hits among fewer rows than this is a guess.
_FEW = 5
#: Log-odds that no bin without rows exceeds: a probability of 1 - 2e-9.
_MAX_ODDS = 20.0

_Vector = NDArray[np.float64]


def fit_histogram_binning(problem: Problem) -> Solution:
    """Return the edges and values of a `HistogramBinning`."""
    map = cast(HistogramBinning, problem.map)
    scaled = ScaledRows.from_problem(problem)
    if map.target == "top_label":
        groups = group_by_odds(scaled.odds, scaled.correct, scaled.weights)
        edges, share, rows = bin_rows(groups, groups.rows, map)
        few = int((rows < _FEW).sum())
        warnings = [f"{few} of {len(rows)} bins hold fewer than {_FEW} rows"] if few else []
        values = scipy.special.logit(share)
    else:
        edges, values, warnings = _each_class(scaled, map)
    return make_solution(scaled, {"edges": edges, "values": values}, warnings)


def bin_rows(
    groups: Groups, mass: _Vector, map: HistogramBinning
) -> tuple[_Vector, _Vector, _Vector]:
    """Return edges (P − 1), the share of hits (P) and the number of rows (B) of each bin."""
    inner = _edges(groups, mass, map)
    of = np.searchsorted(inner, groups.odds, side="right")
    count = len(inner) + 1
    of_group = groups.rows, groups.hits, groups.rows * groups.probability
    rows, hits, sums = (np.bincount(of, one, count).astype(np.float64) for one in of_group)
    means = np.divide(sums, rows, out=_middles(inner), where=rows > 0)
    share = np.where(rows > 0, share_of_hits(hits, rows, means), means)
    cells = next_power_of_two(map.bins)
    return pad_table(inner, cells - 1, 1.0), pad_table(share, cells), rows


def share_of_hits(hits: _Vector, rows: _Vector, probability: _Vector) -> _Vector:
    """Return (hits + min(p, ½)) / (rows + 1), strictly between 0 and 1.

    The row that is added is as likely a hit as was predicted, but never likelier than not: in a
    low bin it must not lift all of a thousand classes, and in a high one it must not confirm that
    nothing ever goes wrong.
    """
    return np.asarray((hits + np.minimum(probability, 0.5)) / (rows + 1.0))


def _edges(groups: Groups, mass: _Vector, map: HistogramBinning) -> _Vector:
    """Return the inner edges (B − 1), at least one, and `STEP` or more apart."""
    parts = np.arange(1, map.bins) / map.bins
    if map.binning == "equal_width":
        return np.asarray(scipy.special.logit(parts))
    done = np.cumsum(mass)
    # Half-way between two groups, so that no row of the fit lies on an edge.
    last = np.searchsorted(done, parts * done[-1] * (1 - 1e-9))
    last = np.unique(last[last < len(mass) - 1])
    wanted = (groups.odds[last] + groups.odds[last + 1]) / 2
    kept: list[float] = []
    for edge in wanted.tolist():
        if not kept or edge >= kept[-1] + STEP:
            kept.append(edge)
    # All rows in one bin: an edge beyond them, and an empty bin beyond that.
    return np.array(kept or [groups.odds[-1] + 1.0])


def _middles(inner: _Vector) -> _Vector:
    """Return a probability from the middle of each bin, in log-odds; the outer ones reach 1 out."""
    around = np.concatenate([[inner[0] - 2.0], inner, [inner[-1] + 2.0]])
    middles = np.minimum((around[1:] + around[:-1]) / 2, _MAX_ODDS)
    return np.asarray(scipy.special.expit(middles))


def _each_class(scaled: ScaledRows, map: HistogramBinning) -> tuple[_Vector, _Vector, list[str]]:
    classes, cells = scaled.problem.classes, next_power_of_two(map.bins)
    edges, values = np.empty((classes, cells - 1)), np.empty((classes, cells))
    absent = 0
    for k, odds, hits in scaled.iter_classes():
        if not (scaled.weights[hits] > 0).any():
            edges[k], values[k] = _steps(odds, cells)
            absent += 1
            continue
        groups = group_by_odds(odds, hits, scaled.weights)
        open_ = groups.rows * groups.probability * (1 - groups.probability)
        edges[k], share, _ = bin_rows(groups, open_, map)
        values[k] = np.log(share)
    text = (
        f"{absent} of {classes} classes have no label: theirs stay as temperature scaling has them"
    )
    return edges, values, [text] if absent else []


def _steps(odds: _Vector, cells: int) -> tuple[_Vector, _Vector]:
    """Return even steps over the range of `odds` that leave a probability as it is, nearly."""
    low, high = float(odds.min()), float(odds.max())
    edges = np.linspace(low, max(high, low + cells * STEP * 2), cells + 1)
    return edges[1:-1], np.asarray(scipy.special.log_expit((edges[1:] + edges[:-1]) / 2))
