"""How often each class occurs now, from predictions without labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError

__all__ = ["estimate_priors"]

Values = NDArray[np.float64]


def estimate_priors(
    probabilities: Values, priors: Values, *, tolerance: float = 1e-6, most_steps: int = 1_000
) -> Values:
    """Return the shares of classes (K,) under which unlabelled rows are likeliest.

    Expectation-maximisation: π ← mean over rows of p_k π_k / π⁰_k, normalised in each row, from
    π = π⁰ on. It holds where only the shares of classes have changed and the probabilities told
    the truth before; under any other drift what it says is wrong, and to rescale by it does harm.
    So nothing but a comparison against labels may act on it. Stops where no share moves by more
    than `tolerance` in a step.

    Parameters
    ----------
    probabilities: (N, K), calibrated for shares `priors`.
    priors: π⁰, (K,), the shares of the calibration set; a class that never occurred there cannot
        be found to occur now, and keeps share 0.

    Raises
    ------
    InputError: shapes that do not fit, or no rows.

    Source: Saerens, Latinne and Decaestecker, Adjusting the outputs of a classifier to new a
    priori probabilities, Neural Computation 2002.
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
    for _ in range(most_steps):
        weighted = likelihoods * now
        # A row all of whose classes have died out says nothing.
        totals = weighted.sum(axis=1, keepdims=True)
        shares = np.divide(weighted, totals, out=np.zeros_like(weighted), where=totals > 0)
        after = shares.sum(axis=0) / max(np.count_nonzero(totals), 1)
        moved = float(np.abs(after - now).max())
        now = after
        if moved < tolerance:
            break
    return now
