"""Frequencies near each prediction, by Dirichlet kernels on the simplex.

The kernel of row i at row j is the density at p_j of a Dirichlet distribution with parameters
α_i = p_i/h + 1, whose mode is p_i: log k = Σ_c p_ic/h · log p_jc − log B(α_i). On two classes it is
a Beta kernel. It has no mass outside the simplex, so that nothing is lost at 0 and 1. Each row is
left out of its own estimate. Shapes: N rows, C classes, D kinds of outcome.

Work is N²·C; memory is a few times N·C and a chunk, whatever N.

Source: Popordanoska, Sayer and Blaschko, A consistent and differentiable Lp canonical calibration
error estimator, NeurIPS 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.arrays import SMALLEST_PROBABILITY

__all__ = [
    "BANDWIDTHS",
    "best_bandwidth",
    "kernel_means",
    "kernel_weights",
    "smooth",
    "spread_rows",
]

Values = NDArray[np.float64]

#: Bandwidths that compete, three to a decade.
BANDWIDTHS = tuple(float(h) for h in np.logspace(-5, 0, 16))
#: Rows whose likelihood decides between them: of more, these many, evenly spread in rank.
_TERMS = 1_000
#: Elements of a chunk of the N × N kernels, 16 MB.
_CHUNK = 2**21


def kernel_means(p: Values, outcomes: Values, bandwidth: float) -> Values:
    """Return Σ_{i≠j} k_ij y_i / Σ_{i≠j} k_ij for each row j, (N, D); a lone row has its own y.

    Parameters
    ----------
    p: (N, C), rows of probabilities.
    outcomes: (N, D), y.
    bandwidth: h, over 0. For N → ∞, means are consistent if h → 0 slowly enough.

    Kernels are compared as logarithms, so that they never all vanish: far from all others, a row
    gets the outcome of the nearest. Probabilities are clipped at 1e-38 in logarithms.
    """
    return smooth(p, outcomes, bandwidth)[0]


def smooth(p: Values, outcomes: Values, bandwidth: float) -> tuple[Values, Values]:
    """Return `kernel_means`, and each row's mean weight in them, (N,), whose sum is 1."""
    if len(p) == 1:
        return outcomes, np.ones(1)
    means, weight = np.empty_like(outcomes), np.zeros(len(p))
    for rows, weights in kernel_weights(p, np.arange(len(p)), bandwidth):
        means[rows] = weights @ outcomes
        weight += weights.sum(axis=0)
    return means, weight / len(p)


def kernel_weights(
    p: Values, rows: NDArray[np.intp], bandwidth: float
) -> Iterator[tuple[NDArray[np.intp], Values]]:
    """Yield some of `rows`, and k_ij / Σ_{i≠j} k_ij for each j of them and all i, 0 at i = j.

    At least two rows; the rest as in `kernel_means`.
    """
    normaliser = _log_beta(p, bandwidth)
    for some, products in _chunks(p, rows):
        kernels = products / bandwidth
        kernels -= normaliser
        kernels -= kernels.max(axis=1, keepdims=True)
        np.exp(kernels, out=kernels)
        kernels /= kernels.sum(axis=1, keepdims=True)
        yield some, kernels


def best_bandwidth(p: Values) -> float:
    """Return which of `BANDWIDTHS` makes rows (N, C) the likeliest, each by all others' kernels.

    Leave-one-out maximum likelihood, as in the source; the smallest where nothing decides.
    """
    if len(p) == 1:
        return BANDWIDTHS[0]
    normalisers = [_log_beta(p, bandwidth) for bandwidth in BANDWIDTHS]
    likelihoods = np.zeros(len(BANDWIDTHS))
    for _, products in _chunks(p, spread_rows(p, _TERMS)):
        for k, bandwidth in enumerate(BANDWIDTHS):
            kernels = products / bandwidth
            kernels -= normalisers[k]
            top = kernels.max(axis=1)
            kernels -= top[:, None]
            np.exp(kernels, out=kernels)
            likelihoods[k] += np.sum(np.log(kernels.sum(axis=1)) + top)
    return BANDWIDTHS[int(np.argmax(likelihoods))]


def _chunks(p: Values, rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Values]]:
    """Yield some of `rows`, and Σ_c log p_jc · p_ic for each j of them and all i, −∞ at i = j.

    All that a kernel takes from two rows; the bandwidth only divides it.
    """
    step = max(1, _CHUNK // len(p))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        products = np.log(np.maximum(p[some], SMALLEST_PROBABILITY)) @ p.T
        products[np.arange(len(some)), some] = -np.inf
        yield some, products


def _log_beta(p: Values, bandwidth: float) -> Values:
    alpha = p / bandwidth + 1
    logs: Values = scipy.special.gammaln(alpha).sum(axis=1)
    logs -= scipy.special.gammaln(alpha.sum(axis=1))
    return logs


def spread_rows(p: Values, most: int) -> NDArray[np.intp]:
    """Return at most so many rows, evenly spread, whatever the order of rows and of classes."""
    if len(p) <= most:
        return np.arange(len(p))
    ranks = np.lexsort(np.sort(p, axis=1).T)
    return ranks[np.linspace(0, len(p) - 1, most).astype(np.intp)]
