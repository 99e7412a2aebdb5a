"""Venn-Abers prediction: two probabilities of a hit, of which one is that of isotonic regression.

For a score s, p0 is the isotonic regression at s of the rows and of (s, no hit), and p1 that of the
rows and of (s, hit). Both are step functions of s.

Legend: G groups of rows with equal scores, P cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from recalib.core.arrays import Numbers
from recalib.maps.odds_curve import positive_class_odds
from recalib.maps.one_vs_rest import class_log_odds
from recalib.maps.venn_abers import VennAbers
from recalib.ops.base import Array, Ops

#: Scores this close to that of a row are equal to it: rounding differs between a fit and its use.
_TIE, _TIE_IN_FLOAT32 = 2.0**-40, 2.0**-20


@dataclass(frozen=True)
class StepTable:
    """log (1 − p0) and log p1 as step functions of a score, (P,) each."""

    #: Ascending: the least score of each cell; the first cell has all lower scores too.
    edges: Numbers
    #: Both in nats, at most 0.
    log_q0: Numbers
    log_p1: Numbers

    def at(self, scores: Numbers) -> tuple[Numbers, Numbers]:
        """Return log (1 − p0) and log p1 at scores, in their shape."""
        cell = np.searchsorted(self.edges[1:], scores, side="right")
        return self.log_q0[cell], self.log_p1[cell]

    def without_repeats(self) -> StepTable:
        """Return the table with neighbouring cells of equal numbers joined."""
        is_new = np.diff(self.log_q0, prepend=np.nan) != 0
        is_new |= np.diff(self.log_p1, prepend=np.nan) != 0
        return StepTable(self.edges[is_new], self.log_q0[is_new], self.log_p1[is_new])

    def thin(self, cells: int) -> StepTable:
        """Return a table of at most `cells`: [p0, p1] of joined cells holds those of each.

        Cells are joined while log p1 / (1 − p0) rises by less than 1 / `cells` of its range.
        """
        if len(self.edges) <= cells:
            return self
        odds = self.log_p1 - self.log_q0
        part = np.floor((odds - odds[0]) / (odds[-1] - odds[0]) * (cells - 1))
        first = np.flatnonzero(np.diff(part, prepend=-1.0) > 0)
        last = np.append(first[1:], len(odds)) - 1
        return StepTable(self.edges[first], self.log_q0[first], self.log_p1[last])


def inductive_table(
    scores: Numbers, rows: Numbers, hits: Numbers, *, is_rounded: bool = False
) -> StepTable:
    """Return p0 and p1 of the inductive Venn-Abers predictor.

    Parameters
    ----------
    scores: (G,), ascending and distinct.
    rows, hits: (G,), the weighted numbers; the added row has the weight 1.
    is_rounded: whether new rows may have the same scores, rounded to float32.

    Source: Vovk, Petej and Fedorova 2015, section 2.
    """
    # p0 changes at a score, and p1 above it.
    log_p1 = np.log(_upper(rows, hits))
    log_q0 = np.log(_upper(rows[::-1], (rows - hits)[::-1]))[::-1]
    gaps = np.diff(scores, prepend=-np.inf, append=np.inf)
    tie = (_TIE_IN_FLOAT32 if is_rounded else _TIE) * np.maximum(1.0, np.abs(scores))
    tie = np.minimum(tie, np.minimum(gaps[1:], gaps[:-1]) / 4)
    edges = np.stack([scores - tie, np.maximum(scores + tie, np.nextafter(scores, np.inf))], axis=1)
    return StepTable(
        np.concatenate([[edges[0, 0] - 1.0], edges.ravel()]),
        np.repeat(log_q0, 2)[1:],
        np.repeat(log_p1, 2)[:-1],
    ).without_repeats()


def cross_table(tables: Sequence[StepTable]) -> StepTable:
    """Return the geometric means of 1 − p0 and p1 over folds: the cross Venn-Abers predictor.

    Source: Vovk, Petej and Fedorova 2015, section 3, the minimax merge for the log loss.
    """
    edges = np.unique(np.concatenate([table.edges for table in tables]))
    log_q0, log_p1 = np.mean([table.at(edges) for table in tables], axis=0)
    return StepTable(edges, log_q0, log_p1).without_repeats()


def intervals(ops: Ops, map: VennAbers, logits: Array, parameters: Mapping[str, Array]) -> Array:
    """Return [p0, p1] of each class in rows (N, K), (N, K, 2), by an array backend.

    Of two classes that of y = 0 is [1 − p1, 1 − p0]. A class masked by −inf has [0, 0].
    """
    softened = logits / parameters["temperature"]
    one = map.target == "positive_class"
    odds = positive_class_odds(ops, softened) if one else class_log_odds(ops, softened)
    q0, p1 = (ops.exp(bound) for bound in map.bounds(ops, odds, parameters))
    if one:
        first, second = (ops.constant(np.eye(2)[[k]]) for k in (0, 1))
        q0, p1 = (
            ops.matmul(q0, second) + ops.matmul(p1, first),
            ops.matmul(p1, second) + ops.matmul(q0, first),
        )
    p0 = 1.0 - q0
    unmasked = ops.unmasked(logits)
    is_known = ops.less_equal(ops.sum(unmasked), 1.0)  # all other classes are masked
    # Geometric means of folds may cross.
    is_less = ops.less_equal(p0, p1)
    low, high = ops.where(is_less, p0, p1) * unmasked, ops.where(is_less, p1, p0) * unmasked
    return ops.pairs(ops.where(is_known, unmasked, low), ops.where(is_known, unmasked, high))


def _upper(rows: Numbers, hits: Numbers) -> Numbers:
    """Return p1 of a score above j of the groups and at most the next, for j from 0 to G.

    p1 is a slope of the greatest convex minorant of the cumulative hits over rows, to which the
    added hit is a step (1, 1) after j groups. While j grows, the minorant behind that step is a
    stack of corners, and each group is pushed and popped at most once.
    """
    x, y = (np.concatenate([[-1.0, 0.0], np.cumsum(values)]) for values in (rows, hits))
    first = scipy.optimize.isotonic_regression(
        np.append(1.0, hits / rows), weights=np.append(1.0, rows)
    )
    corners = first.blocks[::-1]
    xs, ys = x[corners].tolist(), y[corners].tolist()
    slope = (ys[-2] - ys[-1]) / (xs[-2] - xs[-1])
    slopes = [slope]
    # The points before the added step are shifted by it instead of those behind.
    for a, b in zip((x[2:] - 1.0).tolist(), (y[2:] - 1.0).tolist(), strict=True):
        if b < ys[-1] + (a - xs[-1]) * slope:
            xs.pop()
            ys.pop()
            slope = (ys[-1] - b) / (xs[-1] - a)
            while len(xs) > 1 and ys[-2] - b <= slope * (xs[-2] - a):
                xs.pop()
                ys.pop()
                slope = (ys[-1] - b) / (xs[-1] - a)
            xs.append(a)
            ys.append(b)
        slopes.append(slope)
    return np.minimum(slopes, 1.0)
