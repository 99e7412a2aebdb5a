"""Accuracy as a smooth function of confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.mean_metrics import wilson
from recalib.stats.sums import Bins

#: Number of confidence bins whose sums stand for the rows, each at its mean confidence. Bins are a
#: fortieth of the narrowest kernel, so no point moves by 1e-4.
FINE_BINS = 4096
_POINTS = 201
_NARROWEST = 0.01
#: Fewest rows near a point; otherwise the ends of a curve would be single rows.
_FEWEST = 5

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SmoothCurve:
    """A curve over confidence, at points with rows nearby; arrays are (P,), P ≤ 201.

    `piece` is the number of the uninterrupted part of the curve at each point.
    """

    bandwidth: float
    confidence: Vector
    accuracy: Vector
    low: Vector
    high: Vector
    piece: NDArray[np.int64]


def bandwidth_for(rows: int) -> float:
    """Return the kernel's standard deviation σ for N rows: N^(−1/5)/5, at least 0.01.

    At this rate the error of a smooth curve decreases fastest: σ is 0.064 for 300 rows and 0.032
    for 10,000. It depends only on N, so the same rows are smoothed equally before and after
    calibration.
    """
    return float(max(0.2 * rows**-0.2, _NARROWEST))


def smooth_curve(state: Bins, level: float, *, is_root: bool = False) -> SmoothCurve:
    """Return accuracy over confidence, smoothed, with a pointwise band.

        accuracy(t) = t + Σ_i K_σ(t, p_i)(y_i − p_i) / Σ_i K_σ(t, p_i)

    K_σ is the Gaussian kernel reflected at 0 and 1, as in smooth ECE, and σ is `bandwidth_for`'s.
    The residual is smoothed, so that a calibrated model shows the diagonal for any distribution
    of confidences; a mean of y would depend on their density. The result is clipped to [0, 1].

    The band is Wilson's interval with the effective number of rows (Σ K)²/Σ K². It is pointwise,
    for the smoothed curve, and wide where few rows are near. Points are left out where the total
    weight is less than that of five rows at the point; with fewer rows, where it is less than half
    the largest weight.

    Parameters
    ----------
    state: the sums of `FINE_BINS` bins, with at least one row.
    is_root: whether the kernel and the points are on a square-root scale of p, as those bins.

    Source: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
    ICLR 2024, section 4.
    """
    count = state.count[state.filled]
    residual = state.correct[state.filled] - state.confidence[state.filled]
    bandwidth = bandwidth_for(int(count.sum()))
    t = np.linspace(0, 1, _POINTS)
    p = state.confidence[state.filled] / count
    kernel = _kernel(t, np.sqrt(p) if is_root else p, bandwidth)
    weight = kernel @ count
    near = weight >= min(_FEWEST, weight.max() / 2)
    t, kernel, weight = (t**2 if is_root else t)[near], kernel[near], weight[near]
    accuracy = np.clip(t + kernel @ residual / weight, 0, 1)
    rows = weight**2 / (kernel**2 @ count)
    low, high = wilson(accuracy * rows, rows, level)
    piece = np.cumsum(np.diff(np.flatnonzero(near), prepend=0) > 1, dtype=np.int64)
    return SmoothCurve(bandwidth, t, accuracy, low, high, piece)


def _kernel(t: Vector, p: Vector, bandwidth: float) -> Vector:
    """Return K_σ(t, p), (T, P), which is 1 for t = p; double reflections are negligible."""
    images = np.stack([p, -p, 2 - p])
    distances = (t[:, None, None] - images) / bandwidth
    return np.exp(-(distances**2) / 2).sum(axis=1)
