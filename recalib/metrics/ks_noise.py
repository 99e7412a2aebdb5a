"""Confidence interval and noise floor of the class-wise Kolmogorov-Smirnov error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.stats.groups import group_counts, group_sums

_DRAWS = 200
#: Rows for which noise is simulated.
_ROWS = 2000
#: The largest number of probabilities over all draws of labels, and the smallest number of draws.
_MAX_DRAWN, _MIN_DRAWS = 2 * 10**8, 20


def noise_of_columns(probabilities: Floats, labels: Integers) -> tuple[Numbers, float, Numbers]:
    """Return draws of the noise, a standard error, and draws of the error of a calibrated model.

    With s the true cumulative sums and n their noise, max |s + n| ≤ max |s| + max |n|. At t* where
    |s| is largest, with sign σ, it is at least max |s| + σ n(t*), whose noise has mean 0.

    Parameters
    ----------
    probabilities: (N, K).
    labels: (N,).

    Returns
    -------
    excess: (S,), draws of 1/K Σ_k max_t |n_k(t)| by multipliers, 1/N Σ ε_i r_ik 1[p_ik ≤ t], with
        the same normal ε_i for all classes. N enters only as N^(−1/2), so at most 2,000 rows are
        used.
    error: the largest standard error of 1/K Σ_k σ_k n_k(t_k). Residuals of a row sum to 0 over
        classes, so its square is at most 2/K² Σ_k E r_k²/N, and at most 1/(K²N); see `copies` of
        `interval_of_mean_gap`.
    floors: (S,), the errors for labels drawn from the probabilities; S is 200, and down to 20 for
        more than a million probabilities.
    """
    rows, classes = probabilities.shape
    squares, extra = _squares(probabilities, labels)
    copies = min(classes, 2)
    error = float(np.sqrt(min(copies * squares.sum(), 1.0) / rows)) / classes
    sample = np.linspace(0, rows - 1, min(rows, _ROWS)).astype(np.intp)
    excess = _multiplier_draws(probabilities[sample], labels[sample], extra) * np.sqrt(
        len(sample) / rows
    )
    return excess, error, _floors(probabilities)


def _squares(probabilities: Floats, labels: Integers) -> tuple[Numbers, Numbers]:
    """Return E r_k², (K,), and the part of it that is not observed, (K,).

    E r_k² is the larger of the sample's with 4/K added errors and that of a calibrated model.
    """
    rows, classes = probabilities.shape
    label_probabilities = probabilities[np.arange(rows), labels].astype(np.float64)
    occurred = group_sums(labels, 1 - 2 * label_probabilities, classes)
    powers = np.einsum("ik,ik->k", probabilities, probabilities, dtype=np.float64)
    observed = np.maximum(powers + occurred, 0)
    calibrated = probabilities.sum(axis=0, dtype=np.float64) - powers
    squares = np.maximum(observed + 4 / classes, calibrated)
    return squares / rows, (squares - observed) / rows


def _multiplier_draws(probabilities: Floats, labels: Integers, extra: Numbers) -> Numbers:
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
    return total / (rows * classes)


def _floors(probabilities: Floats) -> Numbers:
    """Return the error for each draw of labels, (S,).

    A curve falls between events, so its extremes are just before or at an event, or at the end.
    A draw therefore takes one sort of N events for any K.
    """
    rows, classes = probabilities.shape
    below, at, places = _expected_sums(probabilities)
    totals = probabilities.sum(axis=0, dtype=np.float64)
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    rng = np.random.default_rng(0)
    errors = np.empty(int(np.clip(_MAX_DRAWN // probabilities.size, _MIN_DRAWS, _DRAWS)))
    for draw in range(len(errors)):
        uniform = rng.random((rows, 1)) * cumulative[:, -1:]
        events = (cumulative <= uniform).sum(axis=1)
        where = np.arange(rows), np.minimum(events, classes - 1)
        _, first, counts = np.unique(places[where], return_index=True, return_counts=True)
        owner = where[1][first]
        after = np.cumsum(counts)
        # Places ascend from class to class: subtract the counts of earlier classes.
        firsts = np.searchsorted(owner, owner)
        after -= (after - counts)[firsts]
        distances = np.abs(group_counts(where[1], classes) - totals)
        candidates = np.abs(after - at[where][first]), np.abs(after - counts - below[where][first])
        np.maximum.at(distances, owner, np.maximum(*candidates))
        errors[draw] = distances.sum() / (rows * classes)
    return errors


def _expected_sums(probabilities: Floats) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
    """Return for each p_ik the column's sum below it, the sum up to it, and its place; (N, K).

    Equal probabilities of a column share a place; the places of a class are above those of the
    classes before it.
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
