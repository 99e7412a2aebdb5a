"""Calibration error smoothed by as much as it is large."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.fft
import scipy.optimize
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions

__all__ = ["SmoothError", "smoothed"]

#: Cells of the grid: at least, and at most, where it resolves bandwidths down to `_NARROWEST`.
_FEWEST, _MOST = 2**12, 2**20
#: Cells to a bandwidth, which leaves an error of 1e-5 of the value.
_RESOLUTION = 64
_NARROWEST = _RESOLUTION / _MOST


class SmoothError(Metric):
    """Smooth calibration error at its own bandwidth, smECE_σ = σ; range [0, 1].

        smECE_σ = ∫₀¹ |1/N Σ_i K_σ(t, p_i)(y_i − p_i)| dt

    Top-label. K_σ is the Gaussian kernel reflected at 0 and 1. smECE_σ falls in σ, so that exactly
    one σ equals it: that is the value. No bins to choose, and unlike the error of any bins it
    changes little when confidences do: it is within constant factors of how far the nearest
    perfectly calibrated confidences are. Equal confidences are smoothed alike, so that ties need
    no rule. Biased upwards, less where more is smoothed. No interval in this version.

    Right to 1e-5 of the value, and to 6e-5 where it is below 6e-5, which is where the bandwidth
    stops to shrink.

    Source: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
    ICLR 2024, definitions 3 and 4.
    """

    name: ClassVar[str] = "smooth_ece"
    summary: ClassVar[str] = "calibration error smoothed by a kernel as wide as the error is large"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        p = predictions.confidences.astype(np.float64)
        residuals = (predictions.correct - p) / len(p)
        rough = _fixed_point(_spectrum(p, residuals, _FEWEST))
        cells = 2 ** int(np.ceil(np.log2(_RESOLUTION / max(rough, _NARROWEST))))
        if cells <= _FEWEST:
            return Estimate(rough)
        return Estimate(_fixed_point(_spectrum(p, residuals, cells)))


def smoothed(spectrum: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Return 1/N Σ_i K_σ(t, p_i) r_i at t = m/G, (G + 1,), of the residuals' `spectrum`.

    The reflected kernel is a Gaussian on a circle: it takes exp(−(kπσ)²/2) of each cosine.
    """
    frequencies = np.arange(len(spectrum)) * np.pi * bandwidth
    values: NDArray[np.float64] = scipy.fft.dct(spectrum * np.exp(-(frequencies**2) / 2), type=1)
    return values


def _spectrum(
    p: NDArray[np.float64], residuals: NDArray[np.float64], cells: int
) -> NDArray[np.float64]:
    """Return Σ_i r_i cos(kπ p_i) for k = 0 to G, (G + 1,), from residuals on a grid of G cells.

    Each residual is split among the four nearest points by cubic interpolation, which the smooth
    kernel tells from its place only by (1/(σG))⁴; points beyond 0 and 1 are reflected.
    """
    lower = np.minimum((p * cells).astype(np.int64), cells - 1)
    x = p * cells - lower
    shares = {
        -1: -x * (x - 1) * (x - 2) / 6,
        0: (x + 1) * (x - 1) * (x - 2) / 2,
        1: -(x + 1) * x * (x - 2) / 2,
        2: (x + 1) * x * (x - 1) / 6,
    }
    masses = np.zeros(cells + 1)
    for step, share in shares.items():
        point = np.abs(lower + step)
        point = np.where(point > cells, 2 * cells - point, point)
        masses += np.bincount(point, share * residuals, cells + 1)
    masses[1:-1] /= 2  # a cosine transform of type 1 counts inner points twice
    cosines: NDArray[np.float64] = scipy.fft.dct(masses, type=1)
    return cosines


def _fixed_point(spectrum: NDArray[np.float64]) -> float:
    """Return the σ that smECE_σ equals; where that is under what the grid resolves, smECE there."""
    narrowest = _RESOLUTION / (len(spectrum) - 1)

    def excess(bandwidth: float) -> float:
        return _integral_of_size(smoothed(spectrum, bandwidth)) - bandwidth

    lowest = excess(narrowest)
    if lowest <= 0:
        return max(lowest + narrowest, 0.0)
    if excess(1.0) >= 0:
        return 1.0
    return float(scipy.optimize.brentq(excess, narrowest, 1.0, xtol=1e-14))


def _integral_of_size(values: NDArray[np.float64]) -> float:
    """Return ∫₀¹ |f| of a function that is linear between `values` at m/G, (G + 1,)."""
    a, b = values[:-1], values[1:]
    crosses = a * b < 0
    sums = np.abs(a) + np.abs(b)
    pieces = np.where(crosses, (a**2 + b**2) / np.where(crosses, sums, 1), sums) / 2
    return float(pieces.mean())
