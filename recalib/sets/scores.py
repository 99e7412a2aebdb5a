"""Scores of conformal classification: how little a class conforms to the probabilities of a row.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

#: Of RAPS: what each class beyond the first `FREE_RANKS` of a row adds, as in its paper's tables.
PENALTY, FREE_RANKS = 0.01, 5


def lac(p_nk: _Numbers) -> _Numbers:
    """Return 1 − p (N, K): the least ambiguous classifier (Sadinle, Lei and Wasserman 2019)."""
    return 1.0 - p_nk


def aps(p_nk: _Numbers) -> _Numbers:
    """Return the sum of the probabilities of a class and of all more probable ones, (N, K).

    Ties count in the order of the classes. Source: Romano, Sesia and Candès 2020, without the
    random term.
    """
    return _cumulated(p_nk)[0]


def raps(p_nk: _Numbers) -> _Numbers:
    """Return `aps` and `PENALTY` for each rank beyond `FREE_RANKS`, (N, K).

    Source: Angelopoulos, Bates, Malik and Jordan 2021, without the random term.
    """
    sums, rank = _cumulated(p_nk)
    return sums + PENALTY * np.maximum(rank - FREE_RANKS, 0)


def _cumulated(p_nk: _Numbers) -> tuple[_Numbers, NDArray[np.intp]]:
    """Return the sums in descending order of probability, and the ranks from 1, (N, K) each."""
    order = np.argsort(-p_nk, axis=1, kind="stable")
    sums, rank = np.empty_like(p_nk), np.empty_like(order)
    ordered = np.take_along_axis(p_nk, order, axis=1)
    np.put_along_axis(sums, order, np.cumsum(ordered, axis=1), axis=1)
    np.put_along_axis(rank, order, np.arange(1, p_nk.shape[1] + 1)[None], axis=1)
    return sums, rank


SCORES: dict[str, Callable[[_Numbers], _Numbers]] = {"lac": lac, "aps": aps, "raps": raps}
