"""Calibration error smoothed by as much as it is large."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.noise_floor import drawn_gaps
from recalib.metrics.predictions import Predictions

__all__ = ["SmoothError", "smoothed"]

#: Cells of the grid: at least, and at most, where it resolves bandwidths down to `_NARROWEST`.
_FEWEST, _MOST = 2**12, 2**20
#: Cells to a bandwidth, which leaves an error of 1e-5 of the value.
_RESOLUTION = 64
_NARROWEST = _RESOLUTION / _MOST
#: Of noise, of which less need be known: draws, cells at least and at most, and to a bandwidth.
_NOISE_DRAWS, _NOISE_CELLS, _NOISE_RESOLUTION, _NOISE_NARROWEST = 200, (2**9, 2**12), 16, 2
#: Of their fixed points: the largest error, relative, and evaluations that suffice for less.
_NOISE_PRECISION, _NOISE_STEPS = 1e-3, 20
#: kπσ beyond which a cosine is left out: exp(−9²/2) is 1e-18.
_HIGHEST = 9.0


class SmoothError(Metric):
    """Smooth calibration error at its own bandwidth, smECE_σ = σ; range [0, 1].

        smECE_σ = ∫₀¹ |1/N Σ_i K_σ(t, p_i)(y_i − p_i)| dt

    Top-label. K_σ is the Gaussian kernel reflected at 0 and 1. smECE_σ falls in σ, so that exactly
    one σ equals it: that is the value. No bins to choose, and unlike the error of any bins it
    changes little when confidences do: it is within constant factors of how far the nearest
    perfectly calibrated confidences are. Equal confidences are smoothed alike, so that ties need
    no rule. Biased upwards, less where more is smoothed, `floor` says by how much. The interval is
    for the value that infinitely many rows would give, see `_with_noise`.

    Right to 1e-5 of the value, and to 6e-5 where it is below 6e-5, which is where the bandwidth
    stops to shrink.

    Source: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
    ICLR 2024, definitions 3 and 4.
    """

    name: ClassVar[str] = "smooth_ece"
    summary: ClassVar[str] = "calibration error smoothed by a kernel as wide as the error is large"
    unit: ClassVar[Unit] = "fraction"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        p = predictions.confidences.astype(np.float64)
        residuals = (predictions.correct - p) / len(p)
        rough = _fixed_point(_spectrum(p, residuals, _FEWEST))
        cells = 2 ** int(np.ceil(np.log2(_RESOLUTION / max(rough, _NARROWEST))))
        value = rough if cells <= _FEWEST else _fixed_point(_spectrum(p, residuals, cells))
        return Estimate(value) if level is None else _with_noise(value, p, residuals, level)


def smoothed(
    spectrum: NDArray[np.float64], bandwidth: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return 1/N Σ_i K_σ(t, p_i) r_i at t = m/G, (..., G + 1), of the residuals' `spectrum`.

    The reflected kernel is a Gaussian on a circle: it takes exp(−(kπσ)²/2) of each cosine.
    """
    narrowest = float(np.min(bandwidth))
    # Of higher cosines, less than rounding is left.
    size = spectrum.shape[-1]
    kept = min(size, int(np.ceil(_HIGHEST / (np.pi * max(narrowest, 1 / size)))))
    frequencies = np.arange(kept) * np.pi * bandwidth
    cosines = np.zeros_like(spectrum)
    np.multiply(spectrum[..., :kept], np.exp(-(frequencies**2) / 2), out=cosines[..., :kept])
    values: NDArray[np.float64] = scipy.fft.dct(cosines, type=1, overwrite_x=True)
    return values


def _with_noise(
    value: float, p: NDArray[np.float64], residuals: NDArray[np.float64], level: float
) -> Estimate:
    """Return the value with an interval of `level` and with its floor.

    Smoothed residuals are a + n, a their expectation and n noise, and smECE_σ is a norm of them:
    |‖a + n‖ − ‖a‖| ≤ ‖n‖, whatever a is. So ‖a‖ at the value's own bandwidth is within q of the
    value, where q is the quantile `level` of ‖n‖; and then so is the bandwidth σ = ‖a‖_σ, which
    is on the same side of the value and no farther, since ‖a‖_σ falls in σ. The interval is
    never too narrow for what a is, and too wide where noise and error hardly meet.

    q is the largest of three. One is the multiplier bootstrap's, of 1/N Σ ε_i r_i K_σ(t, p_i) with
    normal ε_i; the other that of labels drawn as the confidences say, which is right where
    nothing is wrong and few rows are; the third what the mean gap, never above the error, is
    unsure by with two rights and two wrongs more, without which rows that are all right would
    prove that none is ever wrong. The same labels, each with its own fixed point, are the
    floor. All are drawn on a grid, where rows of a cell are one: draws cost the same for any N,
    and are the same each time.
    """
    cells = int(np.clip(2 ** np.ceil(np.log2(_NOISE_RESOLUTION / max(value, 1e-9))), *_NOISE_CELLS))
    where = np.rint(p * cells).astype(np.intp)
    counts = np.bincount(where, minlength=cells + 1)
    at = np.flatnonzero(counts)
    n = counts[at]

    def means(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(where, of, cells + 1)[at] / n

    def spectra(masses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of residuals (S, B) in the cells that hold anything, (S, G + 1)."""
        placed = np.zeros((len(masses), cells + 1))
        placed[:, at] = masses
        placed[:, 1:-1] /= 2
        cosines: NDArray[np.float64] = scipy.fft.dct(placed, type=1)
        return cosines

    bandwidth = max(value, _NOISE_NARROWEST / cells)
    scales = np.sqrt(means(residuals**2) * n)
    normal = np.random.default_rng(0).standard_normal((_NOISE_DRAWS, len(at)))
    multiplied = _integral_of_size(smoothed(spectra(normal * scales), bandwidth))
    drawn = drawn_gaps(n, means(p), means(p * (1 - p)) / n, _NOISE_DRAWS)
    calibrated = [spectra(gaps * n / len(p)) for gaps in drawn]
    norms = np.concatenate([_integral_of_size(smoothed(one, bandwidth)) for one in calibrated])
    share = (float(np.sum(residuals)) * len(p) + p.sum() + 2) / (len(p) + 4)
    mean_gap = scipy.special.ndtri((1 + level) / 2) * np.sqrt(share * (1 - share) / len(p))
    reach = float(max(np.quantile(multiplied, level), np.quantile(norms, level), mean_gap))
    floors = np.concatenate([_fixed_points(one, bandwidth) for one in calibrated])
    # At a bandwidth b over the value, the true one is under b or under the value + q.
    low = value - reach if bandwidth == value else 0.0
    high = max(value + reach, bandwidth)
    ends = max(low, 0.0), min(high, 1.0)
    return Estimate(value, *ends, float(floors.mean()), float(np.quantile(floors, 0.95)))


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
        return float(_integral_of_size(smoothed(spectrum, bandwidth))) - bandwidth

    lowest = excess(narrowest)
    if lowest <= 0:
        return max(lowest + narrowest, 0.0)
    if excess(1.0) >= 0:
        return 1.0
    return float(scipy.optimize.brentq(excess, narrowest, 1.0, xtol=1e-14))


def _fixed_points(spectra: NDArray[np.float64], start: float) -> NDArray[np.float64]:
    """Return `_fixed_point` of each of `spectra` (S, G + 1), (S,), to 0.1%; fastest near `start`.

    By secants of e = log smECE_σ − log σ over x = log σ. Since smECE_σ falls, e falls by at least
    what x rises: the root is between x and x + e, however far the secant points.
    """
    lowest = float(np.log(_NOISE_NARROWEST / (spectra.shape[-1] - 1)))
    x = np.full(len(spectra), np.clip(np.log(start), lowest, 0.0))
    low, high = np.full_like(x, lowest), np.zeros_like(x)
    slope, step, before = np.full_like(x, -1.0), np.zeros_like(x), np.zeros_like(x)
    for _ in range(_NOISE_STEPS):
        sizes = _integral_of_size(smoothed(spectra, np.exp(x)[:, None]))
        excess = np.log(np.maximum(sizes, np.finfo(np.float64).tiny)) - x
        low = np.maximum(low, np.where(excess > 0, x, x + excess))
        high = np.minimum(high, np.where(excess > 0, x + excess, x))
        if np.all(np.minimum(np.abs(excess), high - low) < _NOISE_PRECISION):
            break
        moved = np.divide(excess - before, step, out=slope.copy(), where=step != 0)
        slope = np.minimum(moved, -1.0)
        step = np.clip(x - excess / slope, low, high) - x
        before, x = excess, x + step
    # Where the grid resolves no smaller bandwidth, the error at the smallest.
    points: NDArray[np.float64] = np.where(x <= lowest, np.minimum(sizes, np.exp(x)), np.exp(x))
    return points


def _integral_of_size(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ∫₀¹ |f| of functions that are linear between `values` at m/G, (..., G + 1)."""
    rows = values.reshape(-1, values.shape[-1])
    sizes = np.abs(rows)
    sums = sizes.sum(axis=1) - (sizes[:, 0] + sizes[:, -1]) / 2
    # Where the sign changes from a to b, trapezoids of |f| have |ab|/(|a| + |b|) too much.
    negative = rows < 0
    row, at = np.nonzero(negative[:, 1:] != negative[:, :-1])
    a, b = sizes[row, at], sizes[row, at + 1]
    sums -= np.bincount(row, a * b / (a + b), len(rows))
    integrals: NDArray[np.float64] = sums.reshape(values.shape[:-1]) / (values.shape[-1] - 1)
    return integrals
