"""Label shift: estimate class priors from predictions without labels."""

from __future__ import annotations

import numpy as np

from recalib.core.arrays import Numbers
from recalib.errors import InputError


def estimate_priors(
    probabilities: Numbers,
    priors: Numbers,
    *,
    pseudo_counts: float = 0.0,
    tolerance: float = 1e-6,
    max_steps: int = 1_000,
) -> Numbers:
    """Return the maximum-likelihood class priors (K,) of unlabelled rows.

    Expectation-maximisation: π ← mean over rows of p_k π_k / π⁰_k, normalised in each row, from
    π = π⁰. The estimate is valid if only the class priors have changed and the probabilities were
    calibrated before. Under any other drift it is wrong, and rescaling by it does harm; compare
    with labels before you act on it. Stops when no prior changes by more than `tolerance`.

    Parameters
    ----------
    probabilities: (N, K), calibrated for `priors`.
    priors: π⁰, (K,), the class shares of the calibration set. A class with prior 0 keeps it.
    pseudo_counts: c ≥ 0; c π⁰ is added to the counts of the classes in each step: the posterior
        mode under a Dirichlet prior with c π⁰ + 1.

    Raises
    ------
    InputError: shapes that do not fit, or no rows.

    Source: Saerens, Latinne and Decaestecker, Adjusting the outputs of a classifier to new a
    priori probabilities, Neural Computation 2002.

    Examples
    --------
    >>> from recalib.drift import estimate_priors
    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.9, 0.1]])
    >>> estimate_priors(p, np.array([0.5, 0.5])).round(2)
    array([1., 0.])
    """
    p, before = np.asarray(probabilities, np.float64), np.asarray(priors, np.float64)
    if p.ndim != 2 or not len(p) or before.shape != p.shape[1:] or not np.isclose(before.sum(), 1):
        raise InputError(
            "probabilities",
            found=f"{p.shape}, with shares {before.shape} that sum to {before.sum():g}",
            accepted="(N, K) with N ≥ 1, and shares (K,) that sum to 1",
        )
    likelihoods = np.divide(p, before, out=np.zeros_like(p), where=before > 0)
    likelihoods = likelihoods[likelihoods.any(axis=1)]
    if not len(likelihoods):
        return before
    now = before
    for _ in range(max_steps):
        weighted = likelihoods * now
        # A row whose classes all have prior 0 carries no information.
        totals = weighted.sum(axis=1, keepdims=True)
        shares = np.divide(weighted, totals, out=np.zeros_like(weighted), where=totals > 0)
        counts = shares.sum(axis=0) + pseudo_counts * before
        after = counts / max(np.count_nonzero(totals) + pseudo_counts, 1)
        change = float(np.abs(after - now).max())
        now = after
        if change < tolerance:
            break
    return now
