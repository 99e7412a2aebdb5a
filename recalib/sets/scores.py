"""Scores of conformal classification: how little a class conforms to the probabilities of a row.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable

from recalib.core.card import SetOptions
from recalib.ops.base import Array, Ops


def lac(ops: Ops, p_nk: Array, classes: int, options: SetOptions) -> Array:
    """Return 1 − p (N, K): the least ambiguous classifier (Sadinle, Lei and Wasserman 2019)."""
    return 1.0 - p_nk


def aps(ops: Ops, p_nk: Array, classes: int, options: SetOptions) -> Array:
    """Return the sum of the probabilities of a class and of all more probable ones, (N, K).

    Ties count in the order of the classes. Source: Romano, Sesia and Candès 2020, without the
    random term.
    """
    order = ops.descending(p_nk, classes)
    return ops.put_along(p_nk, order, ops.cumsum(ops.take_along(p_nk, order)))


def raps(ops: Ops, p_nk: Array, classes: int, options: SetOptions) -> Array:
    """Return `aps` and `penalty` for each rank beyond `k_reg`, (N, K).

    Source: Angelopoulos, Bates, Malik and Jordan 2021, without the random term.
    """
    order = ops.descending(p_nk, classes)
    sums = ops.cumsum(ops.take_along(p_nk, order))
    beyond = ops.cumsum(sums * 0.0 + 1.0) - options.k_reg
    return ops.put_along(p_nk, order, sums + ops.relu(beyond) * options.penalty)


#: Of probabilities in float64 (N, K) of a backend.
SCORES: dict[str, Callable[[Ops, Array, int, SetOptions], Array]] = {
    "lac": lac,
    "aps": aps,
    "raps": raps,
}
