"""Fits of `temperature` and `vector` to all folds at once, for simulations with many fits.

Newton's method in arrays over F folds reaches the parameters of `Candidate.fitted` in a tenth of
its time on small data. Legend: F fits, N rows, K classes; θ has the slopes, then the intercepts.
"""

from __future__ import annotations

import numpy as np
import scipy.special
from numpy.typing import NDArray

Values = NDArray[np.float64]
Labels = NDArray[np.int64]

_STEPS = 25
_TOLERANCE = 1e-5
#: The sum of all intercepts has no effect; this ridge makes its curvature positive.
_RIDGE = 1e-9


def fit_folds(map: str, z: Values, y: Labels, training: NDArray[np.bool_]) -> Values | None:
    """Return the parameters (F, P) by NLL, or None if Newton's method fails for some.

    Parameters
    ----------
    map: `temperature`, P = 1, or `vector`, P = 2K.
    training: (F, N), the rows of each fit.
    """
    width = 1 if map == "temperature" else 2 * z.shape[1]
    theta = np.zeros((1, width))
    theta[:, : max(1, width // 2)] = 0.5
    everything = _newton(z, y, np.ones((1, len(y))), theta)
    if everything is None:
        return None
    return _newton(z, y, training.astype(np.float64), np.repeat(everything, len(training), axis=0))


def nll(z: Values, y: Labels, theta: Values) -> Values:
    """Return the NLL (F, N) of each row under each fit."""
    s = _scores(z, theta)
    picked: Values = s[:, np.arange(len(y)), y]
    return scipy.special.logsumexp(s, axis=2) - picked


def _scores(z: Values, theta: Values) -> Values:
    if theta.shape[1] == 1:
        return theta[:, :, None] * z
    slopes, intercepts = np.split(theta, 2, axis=1)
    return slopes[:, None] * z + intercepts[:, None]


def _newton(z: Values, y: Labels, weights: Values, theta: Values) -> Values | None:
    onehot = np.eye(z.shape[1])[y]
    for _ in range(_STEPS):
        p = scipy.special.softmax(_scores(z, theta), axis=2)
        slope, hessian = _derivatives(z, onehot, weights, p, theta.shape[1])
        step = np.linalg.solve(hessian, slope[:, :, None])[:, :, 0]
        # A step of at most 0.5 in any parameter, which Newton's method needs far from the optimum.
        step /= np.maximum(1, 2 * np.abs(step).max(axis=1, keepdims=True))
        theta = theta - step
        if np.abs(step).max() < _TOLERANCE:
            slopes = theta[:, : max(1, theta.shape[1] // 2)]
            return theta if (slopes > 0).all() else None
    return None


def _derivatives(
    z: Values, onehot: Values, weights: Values, p: Values, width: int
) -> tuple[Values, Values]:
    """Return the gradient (F, P) and the Hessian (F, P, P)."""
    error = (p - onehot) * weights[:, :, None]
    pz = p * z
    if width == 1:
        mean = pz.sum(axis=2)
        variance = (pz * z).sum(axis=2) - mean**2
        slope = (error * z).sum(axis=(1, 2))
        return slope[:, None], (weights * variance).sum(axis=1)[:, None, None]
    slope = np.concatenate([(error * z).sum(axis=1), error.sum(axis=1)], axis=1)
    features = np.concatenate([pz, p], axis=2) * np.sqrt(weights)[:, :, None]
    hessian = -features.transpose(0, 2, 1) @ features
    k = np.arange(width // 2)
    products = (pz * z, pz, p)
    sums = [np.matmul(weights[:, None], product)[:, 0] for product in products]
    for (row, column), diagonal in zip(((0, 0), (0, 1), (1, 1)), sums, strict=True):
        hessian[:, row * len(k) + k, column * len(k) + k] += diagonal
        if row != column:
            hessian[:, column * len(k) + k, row * len(k) + k] += diagonal
    hessian[:, np.arange(width), np.arange(width)] += _RIDGE * len(z)
    return slope, hessian
