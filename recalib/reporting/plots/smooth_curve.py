"""Accuracy as a smooth function of confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.metrics import BinState
from recalib.metrics.mean_metrics import wilson

__all__ = ["FINE_BINS", "SmoothCurve", "bandwidth_for", "smooth_curve"]

#: Rows enter the curve by the sums of this many bins of confidence, each of which stands at its
#: mean: a fortieth of the narrowest kernel, which moves no point by 1e-4.
FINE_BINS = 4096
_POINTS = 201
_NARROWEST = 0.01
#: Rows that must be near, lest the ends of a curve are single rows.
_FEWEST = 5

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SmoothCurve:
    """A curve over confidence, at the points that rows are near to; arrays are (P,), P ≤ 201.

    `piece` numbers the points' uninterrupted stretches.
    """

    bandwidth: float
    confidence: Vector
    accuracy: Vector
    low: Vector
    high: Vector
    piece: NDArray[np.int64]


def bandwidth_for(rows: int) -> float:
    """Return the kernel's standard deviation σ for N rows: N^(−1/5)/5, at least 0.01.

    The rate at which the error of a smooth curve falls fastest; 6.4 points of confidence for 300
    rows, 3.2 for 10,000. It depends on nothing but N, so that the same rows before and after
    calibration are smoothed alike.
    """
    return float(max(0.2 * rows**-0.2, _NARROWEST))


def smooth_curve(state: BinState, level: float) -> SmoothCurve:
    """Return accuracy over confidence, smoothed, with a pointwise band.

        accuracy(t) = t + Σ_i K_σ(t, p_i)(y_i − p_i) / Σ_i K_σ(t, p_i)

    K_σ is the Gaussian kernel reflected at 0 and 1, as in smooth ECE, and σ is `bandwidth_for`'s.
    What is smoothed is the residual, so that a calibrated model shows the diagonal wherever its
    confidences lie; a mean of y alone would follow their density. Clipped to [0, 1].

    The band is Wilson's interval with the effective number of rows (Σ K)²/Σ K². It is for the
    smoothed curve at each point by itself, and wide where few rows are near. Points where all rows
    together weigh less than five rows on the spot are left out; with fewer rows, those of less
    than half the largest weight.

    Parameters
    ----------
    state: the sums of `FINE_BINS` bins, of at least one row.

    Source: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
    ICLR 2024, section 4.
    """
    count = state.count[state.filled]
    residual = state.correct[state.filled] - state.confidence[state.filled]
    bandwidth = bandwidth_for(int(count.sum()))
    t = np.linspace(0, 1, _POINTS)
    kernel = _kernel(t, state.confidence[state.filled] / count, bandwidth)
    weight = kernel @ count
    near = weight >= min(_FEWEST, weight.max() / 2)
    t, kernel, weight = t[near], kernel[near], weight[near]
    accuracy = np.clip(t + kernel @ residual / weight, 0, 1)
    rows = weight**2 / (kernel**2 @ count)
    low, high = wilson(accuracy * rows, rows, level)
    piece = np.cumsum(np.diff(np.flatnonzero(near), prepend=0) > 1, dtype=np.int64)
    return SmoothCurve(bandwidth, t, accuracy, low, high, piece)


def _kernel(t: Vector, p: Vector, bandwidth: float) -> Vector:
    """Return K_σ(t, p), (T, P), 1 where both agree; what is reflected twice weighs nothing."""
    images = np.stack([p, -p, 2 - p])
    distances = (t[:, None, None] - images) / bandwidth
    kernel: Vector = np.exp(-(distances**2) / 2).sum(axis=1)
    return kernel
