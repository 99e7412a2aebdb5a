"""Rows of equal logits: scores of few values, or the same rows several times.

Labels of rows with equal scores differ, as their probabilities say. Labels of one row that is there
several times are equal.

Legend: n rows, G groups of equal rows, K classes.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.core.card import Diagnostic
from recalib.fitting.cross_validation import mean_and_standard_error
from recalib.stats.groups import group_counts

#: With this share of different numbers in one column, rows are not compared.
_DIFFERENT = 0.9
#: The least share of rows in groups, the least number of groups, and how many are compared.
_LEAST_SHARE, _LEAST_GROUPS, _MAX_NUMBERS = 0.2, 5, 4_000_000
#: Groups agree more than their probabilities and their neighbours explain, by this and by as many
#: standard errors.
_LEAST_EXCESS, _Z = 0.1, 2.33
#: A neighbour is nearer than this, in Σ |p − p'|.
_NEAR = 0.3


def distinct_rows(logits: Floats) -> NDArray[np.intp]:
    """Return the number of each row's group of equal rows, (n,), from 0."""
    rows = len(logits)
    if len(np.unique(logits[:, -1])) >= _DIFFERENT * rows:
        return np.arange(rows)
    content = np.ascontiguousarray(logits)
    raw = content.view(np.dtype((np.void, content.itemsize * content.shape[1])))
    return np.asarray(np.unique(raw.reshape(-1), return_inverse=True)[1].reshape(-1))


def excess_agreement(
    logits: Floats, temperature: float, labels: Integers, units: NDArray[np.intp]
) -> Diagnostic | None:
    """Return that rows are repeated with their labels, if scores of few values do not explain it.

    Two rows of a group have the same label with probability Σ p_k², or as often as a row of the
    nearest group has it.

    Parameters
    ----------
    logits: (n, K).
    temperature: the best for these rows, for their p.
    units: (n,), of `distinct_rows`.
    """
    sizes = group_counts(units)
    if sizes[sizes > 1].sum() < _LEAST_SHARE * len(labels):
        return None
    classes = logits.shape[1]
    largest = np.argsort(-sizes, kind="stable")[: max(9, int((_MAX_NUMBERS / classes) ** 0.5))]
    largest = largest[sizes[largest] > 1]
    if len(largest) < _LEAST_GROUPS:
        return None
    first = np.unique(units, return_index=True)[1][largest]
    z = logits[first]
    p, raw = (scipy.special.softmax(z / t, axis=1) for t in (temperature, 1.0))
    counts = np.zeros((len(sizes), classes))
    np.add.at(counts, (units, labels), 1)
    counts, m = counts[largest], sizes[largest].astype(np.float64)
    agreement = ((counts**2).sum(axis=1) - m) / (m * (m - 1))
    expected = np.maximum((p**2).sum(axis=1), _neighbour_agreement(raw, counts / m[:, None]))
    excess, error = mean_and_standard_error(agreement - expected, m)
    if excess < max(_LEAST_EXCESS, _Z * error):
        return None
    return Diagnostic("repeated rows", {"rows": float(len(labels)), "distinct": float(len(sizes))})


def _neighbour_agreement(p: Floats, shares: Floats) -> Floats:
    """Return how often a row of the nearest group has the same label, 0 without one nearby."""
    distances = scipy.spatial.distance.cdist(p, p, "cityblock")
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    agreement: Floats = (shares * shares[nearest]).sum(axis=1)
    return np.where(distances[np.arange(len(p)), nearest] < _NEAR, agreement, 0.0)
