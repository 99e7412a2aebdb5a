"""Kernel estimates of outcome frequencies, with Dirichlet kernels on the simplex.

The kernel of row i at row j is the density at p_j of a Dirichlet distribution with parameters
α_i = p_i/h + 1, whose mode is p_i: log k = Σ_c p_ic/h · log p_jc − log B(α_i). For two classes it
is a Beta kernel. It has no mass outside the simplex, so there is no boundary bias at 0 and 1. Each
row is excluded from its estimate. Shapes: N rows, C classes, D outcomes.

Time is N²·C; memory is a few times N·C plus one chunk.

Source: Popordanoska, Sayer and Blaschko, A consistent and differentiable Lp canonical calibration
error estimator, NeurIPS 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import SMALLEST_PROBABILITY, Numbers

#: Candidate bandwidths, three in each decade.
BANDWIDTHS = tuple(float(h) for h in np.logspace(-5, 0, 16))
#: The largest number of rows in the likelihood; more rows are sampled evenly by rank.
_TERMS = 1_000
#: Elements of a chunk of the N × N kernels, 16 MB.
_CHUNK = 2**21


def kernel_means(p: Numbers, outcomes: Numbers, bandwidth: float) -> Numbers:
    """Return Σ_{i≠j} k_ij y_i / Σ_{i≠j} k_ij for each row j, (N, D); for N = 1, y.

    Parameters
    ----------
    p: (N, C), rows of probabilities.
    outcomes: (N, D), y.
    bandwidth: h > 0. For N → ∞, means are consistent if h → 0 slowly enough.

    Kernels are normalised as logarithms, so they never all underflow: a row far from all others
    gets the outcome of the nearest one. Probabilities are clipped at 1e-38 in logarithms.
    """
    return smooth(p, outcomes, bandwidth)[0]


def smooth(p: Numbers, outcomes: Numbers, bandwidth: float) -> tuple[Numbers, Numbers]:
    """Return `kernel_means` and the mean weight of each row in them, (N,), with sum 1."""
    if len(p) == 1:
        return outcomes, np.ones(1)
    means, weight = np.empty_like(outcomes), np.zeros(len(p))
    for rows, weights in kernel_weights(p, np.arange(len(p)), bandwidth):
        means[rows] = weights @ outcomes
        weight += weights.sum(axis=0)
    return means, weight / len(p)


def kernel_weights(
    p: Numbers, rows: NDArray[np.intp], bandwidth: float
) -> Iterator[tuple[NDArray[np.intp], Numbers]]:
    """Yield chunks of `rows` with k_ij / Σ_{i≠j} k_ij for their j and all i, 0 at i = j.

    It needs at least two rows; the rest as in `kernel_means`.
    """
    normaliser = _log_beta(p, bandwidth)
    for chunk, products in _chunks(p, rows):
        kernels = products / bandwidth
        kernels -= normaliser
        kernels -= kernels.max(axis=1, keepdims=True)
        np.exp(kernels, out=kernels)
        kernels /= kernels.sum(axis=1, keepdims=True)
        yield chunk, kernels


def best_bandwidth(p: Numbers) -> float:
    """Return the bandwidth in `BANDWIDTHS` of the largest leave-one-out likelihood of rows (N, C).

    As in the source; ties go to the smallest.
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


def _chunks(p: Numbers, rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Numbers]]:
    """Yield chunks of `rows` with Σ_c log p_jc · p_ic for their j and all i, −∞ at i = j.

    This is the part of a log-kernel that depends on two rows; it is divided by the bandwidth.
    """
    step = max(1, _CHUNK // len(p))
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        products = np.log(np.maximum(p[chunk], SMALLEST_PROBABILITY)) @ p.T
        products[np.arange(len(chunk)), chunk] = -np.inf
        yield chunk, products


def _log_beta(p: Numbers, bandwidth: float) -> Numbers:
    alpha = p / bandwidth + 1
    logs: Numbers = scipy.special.gammaln(alpha).sum(axis=1)
    logs -= scipy.special.gammaln(alpha.sum(axis=1))
    return logs


def spread_rows(p: Numbers, count: int) -> NDArray[np.intp]:
    """Return at most `count` rows, evenly spread, independent of the order of rows and classes."""
    if len(p) <= count:
        return np.arange(len(p))
    ranks = np.lexsort(np.sort(p, axis=1).T)
    return ranks[np.linspace(0, len(p) - 1, count).astype(np.intp)]
