"""By how much the class-wise KS error may be off, and what it shows where nothing is wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers

__all__ = ["noise_of_columns"]

Values = NDArray[np.float64]

_DRAWS = 200
#: Rows of which noise is drawn.
_ROWS = 2000
#: Probabilities that labels are drawn from, over all draws; and the fewest draws.
_DRAWN, _FEWEST = 2 * 10**8, 20


def noise_of_columns(probabilities: Floats, labels: Integers) -> tuple[Values, float, Values]:
    """Return what the mean over classes of KS errors may be off by, and what it is by chance.

    With s the true cumulative sums and n their noise, max |s + n| ≤ max |s| + max |n|; and where s
    is largest, at t* with sign σ, it is at least max |s| + σ n(t*), of mean 0.

    Parameters
    ----------
    probabilities: (N, K).
    labels: (N,).

    Returns
    -------
    too_large: (S,), draws of 1/K Σ_k max_t |n_k(t)| by multipliers, 1/N Σ ε_i r_ik 1[p_ik ≤ t] with
        normal ε_i that are the same for all classes. N enters only as N^(−1/2), so that of more
        than 2,000 rows so many are drawn.
    error: the largest standard error of 1/K Σ_k σ_k n_k(t_k). Residuals of a row add up to 0 over
        classes, so that its square is at most 2/K² Σ_k E r_k²/N, and 1/(K²N); see `copies` of
        `interval_of_mean_gap`.
    floors: (S,), the error of labels drawn from each row of probabilities; S is 200, and fewer,
        down to 20, of more than a million probabilities.
    """
    rows, classes = probabilities.shape
    squares, extra = _squares(probabilities, labels)
    copies = min(classes, 2)
    error = float(np.sqrt(min(copies * squares.sum(), 1.0) / rows)) / classes
    some = np.linspace(0, rows - 1, min(rows, _ROWS)).astype(np.intp)
    off = _multiplied(probabilities[some], labels[some], extra) * np.sqrt(len(some) / rows)
    return off, error, _floors(probabilities)


def _squares(probabilities: Floats, labels: Integers) -> tuple[Values, Values]:
    """Return E r_k², (K,), and how much of it rows do not show, (K,).

    It is the sample's with 4/K errors more, or that of a calibrated model, were it larger.
    """
    rows, classes = probabilities.shape
    own = probabilities[np.arange(rows), labels].astype(np.float64)
    occurred = np.bincount(labels, minlength=classes) - 2 * np.bincount(labels, own, classes)
    powers = np.einsum("ik,ik->k", probabilities, probabilities, dtype=np.float64)
    found = np.maximum(powers + occurred, 0)
    calibrated = probabilities.sum(axis=0, dtype=np.float64) - powers
    squares = np.maximum(found + 4 / classes, calibrated)
    return squares / rows, (squares - found) / rows


def _multiplied(probabilities: Floats, labels: Integers, extra: Values) -> Values:
    """Return draws (S,) of the mean over classes of max_t |1/N Σ ε_i r_ik 1[p_ik ≤ t]|."""
    rows, classes = probabilities.shape
    normal = np.random.default_rng(0).standard_normal((rows, _DRAWS))
    total = np.zeros(_DRAWS)
    for k in range(classes):
        order = np.argsort(probabilities[:, k])
        p = probabilities[order, k].astype(np.float64)
        sizes = np.sqrt((p - (labels[order] == k)) ** 2 + extra[k])
        curves = np.cumsum(normal[order] * sizes[:, None], axis=0)
        ends = np.append(p[1:] != p[:-1], True)
        total += np.abs(curves[ends]).max(axis=0)
    off: Values = total / (rows * classes)
    return off


def _floors(probabilities: Floats) -> Values:
    """Return the error of each draw of labels, (S,).

    A curve falls between events, so that it is farthest off just before or at one, or at its end:
    a draw takes one sort of N events, whatever K.
    """
    rows, classes = probabilities.shape
    below, at, places = _expected(probabilities)
    totals = probabilities.sum(axis=0, dtype=np.float64)
    upto = np.cumsum(probabilities, axis=1, dtype=np.float64)
    rng = np.random.default_rng(0)
    errors = np.empty(int(np.clip(_DRAWN // probabilities.size, _FEWEST, _DRAWS)))
    for draw in range(len(errors)):
        uniform = rng.random((rows, 1)) * upto[:, -1:]
        events = (upto <= uniform).sum(axis=1)
        where = np.arange(rows), np.minimum(events, classes - 1)
        _, first, counts = np.unique(places[where], return_index=True, return_counts=True)
        owner = where[1][first]
        after = np.cumsum(counts)
        # Places rise from class to class: what came before a class is not its own.
        firsts = np.searchsorted(owner, owner)
        after -= (after - counts)[firsts]
        found = np.abs(np.bincount(where[1], minlength=classes) - totals)
        off = np.abs(after - at[where][first]), np.abs(after - counts - below[where][first])
        np.maximum.at(found, owner, np.maximum(*off))
        errors[draw] = found.sum() / (rows * classes)
    return errors


def _expected(probabilities: Floats) -> tuple[Values, Values, NDArray[np.int64]]:
    """Return of each p_ik the sum of its column below it, that up to it, and its place; (N, K).

    Equal probabilities of a column have one place; all places of a class are over those before.
    """
    rows, classes = probabilities.shape
    below, at = np.empty((2, rows, classes))
    places = np.empty((rows, classes), np.int64)
    for k in range(classes):
        values, inverse, counts = np.unique(
            probabilities[:, k], return_inverse=True, return_counts=True
        )
        sums = np.cumsum(counts * values.astype(np.float64))
        at[:, k] = sums[inverse]
        below[:, k] = (sums - counts * values)[inverse]
        places[:, k] = k * rows + inverse
    return below, at, places
