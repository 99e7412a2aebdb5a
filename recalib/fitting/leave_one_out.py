"""Approximate leave-one-out likelihood of maps that are linear in their parameters.

A fit without row i differs by about one Newton step. With the Hessian's blocks of each class,
H_k = 1/N Σ_i w_i p_ik (1 − p_ik) φ_ik φ_ikᵀ + 2 · ridge, the row's scores become

    s_ik + a_ik (p_ik − y_ik) / (1 − a_ik p_ik (1 − p_ik)),  a_ik = φ_ikᵀ H_k⁻¹ φ_ik / N

without a second fit (Pregibon 1981, eq. 10, for one class; Rad and Maleki 2020, eq. 8).

Legend: N rows, K classes, D features of a class, n rows that count for a class.
"""

from __future__ import annotations

import numpy as np
import scipy

from recalib.core.arrays import Floats, Numbers
from recalib.fitting.linear_nll import LinearNll

#: Rows whose probability of a class is this near its label have no weight in the block.
_NEGLIGIBLE = 1e-3
#: A row that alone determines its score would have 1.
_MAX_LEVERAGE = 0.999
_JITTER = 1e-12
#: Rows that are scored, and that the blocks of classes are summed over: many features of a class
#: limit them, down to the least.
_MAX_ROWS, _MAX_NUMBERS, _LEAST_ROWS = 2_000, 100_000, 1_000


def leave_one_out_nll(nll: LinearNll, theta: Numbers, rows: float) -> float:
    """Return the mean NLL of a row under the fit to the others, in nats, over at most 2,000 rows.

    Parameters
    ----------
    nll: the objective, with its penalty.
    theta: (K, D), its minimiser.
    rows: the number of rows that the penalty sees.
    """
    count = len(nll.x)
    most = min(count, _MAX_ROWS, max(_LEAST_ROWS, _MAX_NUMBERS // theta.shape[1]))
    kept = np.arange(most) * count // most
    x, row_weights = nll.x[kept], None if nll.weights is None else nll.weights[kept]
    scores = nll.design.scores(x, theta)
    if nll.masked is not None:
        scores[nll.masked[kept]] = -np.inf
    true = np.arange(len(scores)), nll.labels[kept]
    g: Numbers = scipy.special.softmax(scores, axis=1)
    g[true] -= 1
    ridge = nll.ridge.diagonal
    for k, column in enumerate(g.T):
        index = np.flatnonzero(np.abs(column) > _NEGLIGIBLE)
        residuals = column[index]
        variances = np.abs(residuals) * (1 - np.abs(residuals))
        weights = variances if row_weights is None else variances * row_weights[index]
        features = nll.design.features(x[index], k)
        spreads = _spreads(features, weights / len(g), 2 * ridge[k]) / rows
        leverages = np.minimum(spreads * variances, _MAX_LEVERAGE)
        scores[index, k] += spreads * residuals / (1 - leverages)
    return float(
        np.average(scipy.special.logsumexp(scores, axis=1) - scores[true], weights=row_weights)
    )


def _spreads(features: Floats, weights: Numbers, ridge: Numbers) -> Numbers:
    """Return φᵀ H⁻¹ φ of each row, (n,), with H = Σ w φ φᵀ + ridge."""
    block = (features.T * weights) @ features
    block[np.diag_indices_from(block)] += ridge
    block[np.diag_indices_from(block)] += _JITTER * max(block.diagonal().max(), 1.0)
    whitened = scipy.linalg.solve_triangular(np.linalg.cholesky(block), features.T, lower=True)
    return np.einsum("ij,ij->j", whitened, whitened)  # type: ignore[no-any-return]
