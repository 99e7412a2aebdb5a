"""Smooth ECE: calibration error by kernel smoothing with an automatic bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.binned import GroupMetric
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.noise_floor import drawn_gaps
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import group_counts, group_sums
from recalib.stats.sums import Moments

Values = NDArray[np.float32] | Numbers

#: The smallest and largest number of grid cells; the latter resolves bandwidths to `_NARROWEST`.
_MIN_CELLS, _MAX_CELLS = 2**12, 2**20
#: Cells in a bandwidth: the error is 1e-5 of the value.
_RESOLUTION = 64
#: The grid for a first guess of the value, and cells in a bandwidth: the error is a few percent.
_ROUGH_CELLS, _ROUGH_RESOLUTION = 2**10, 4
_NARROWEST = _RESOLUTION / _MAX_CELLS
#: The same for the noise, at lower precision: draws, limits of cells, cells in a bandwidth. The
#: error of the grid is below 1%, and that of the quantiles of 200 draws 4%.
_NOISE_DRAWS, _NOISE_CELLS, _NOISE_RESOLUTION, _NOISE_NARROWEST = 200, (64, 2**12), 3, 2
#: The largest relative error of the fixed points of noise, and the evaluations they need.
_NOISE_PRECISION, _NOISE_STEPS = 5e-3, 20
#: Cosines with a larger kπσ are left out: exp(−9²/2) is 1e-18.
_HIGHEST = 9.0


class SmoothError(GroupMetric):
    """Smooth calibration error at its own bandwidth, smECE_σ = σ; range [0, 1].

        smECE_σ = ∫₀¹ |1/N Σ_i K_σ(t, p_i)(y_i − p_i)| dt

    Top-label. K_σ is the Gaussian kernel reflected at 0 and 1. smECE_σ decreases in σ, so exactly
    one σ equals it: this is the value. It has no bins and, unlike binned errors, it is continuous
    in the confidences: it is within constant factors of the distance to the nearest perfectly
    calibrated confidences. Ties are smoothed together and need no rule. Biased upwards, less with
    more smoothing, see `floor`. The interval is for the value with infinitely many rows, see
    `_with_noise`.

    The relative error is 1e-5; values below 6e-5, the smallest bandwidth, have an error of 6e-5.

    Streams: the right rows of a cell of `Cells` count at their mean confidence, and the
    wrong rows at theirs. `error_bound` limits the difference; it is small if the value, which is
    the bandwidth, is larger than the cells.

    Use it where no bins are wanted, and a value should not jump when a row changes a little.

    Source: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
    ICLR 2024, definitions 3 and 4.
    """

    name: ClassVar[str] = "smooth_ece"
    summary: ClassVar[str] = "calibration error smoothed by a kernel as wide as the error"

    def measure(
        self,
        predictions: Predictions,
        level: float | None = None,
        weights: Numbers | None = None,
    ) -> Estimate:
        w = np.ones(len(predictions)) if weights is None else weights
        return _estimate(_Points.of_rows(predictions, w), level)

    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        return _estimate(_Points.of_cells(groups), level)

    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        """See `_distance_of_points`; the numerical errors of both values are added."""
        bandwidth = max(_value(_Points.of_cells(groups)), _NARROWEST)
        return min(_distance_of_points(groups, bandwidth) + 2e-5 * bandwidth, 1.0)


@dataclass(frozen=True, eq=False)
class _Points:
    """Sums over the rows at each of P confidences; arrays are (P,).

    A row is a point. A cell of a histogram is two: its right rows at their mean confidence, and its
    wrong rows at theirs.
    """

    confidences: Numbers
    #: Σw, and Σw².
    weights: Numbers
    squared_weights: Numbers
    #: Σw(y − p), and Σw²(y − p)².
    residuals: Numbers
    squared_residuals: Numbers

    @classmethod
    def of_rows(cls, predictions: Predictions, weights: Numbers) -> _Points:
        """Return rows with weights (N,)."""
        p = predictions.confidences.astype(np.float64)
        residuals = weights * (predictions.correct - p)
        return cls(p, weights, weights**2, residuals, residuals**2)

    @classmethod
    def of_cells(cls, groups: ConfidenceGroups) -> _Points:
        """Return the points of cells."""
        parts = []
        for (hit, w, wp), (_, v, vp) in zip(
            _right_and_wrong(groups.moments), _right_and_wrong(groups.squared), strict=True
        ):
            at = (w > 0) & (v > 0)
            # Rounding may move the mean of a few rows among many of the other kind.
            p, p_of_squares = (np.clip(wp[at] / w[at], 0, 1), np.clip(vp[at] / v[at], 0, 1))
            squares = v[at] * (hit - p_of_squares) ** 2
            parts.append((p, w[at], v[at], w[at] * (hit - p), squares))
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    @property
    def shares(self) -> Numbers:
        """Σw(y − p) of each point, divided by Σw of all."""
        return self.residuals / self.weights.sum()


def _right_and_wrong(
    sums: Moments,
) -> list[tuple[int, Numbers, Numbers]]:
    """Return y, Σw and Σwp of right and of wrong rows, (G,)."""
    wrong, right = sums.by_event()
    return [
        (1, right, sums.confidence_correct),
        (0, wrong, sums.confidence - sums.confidence_correct),
    ]


def _distance_of_points(groups: ConfidenceGroups, bandwidth: float) -> float:
    """Return a bound on the change of smECE_σ if rows move to the points of their cell.

    At the value σ of the points, the value of the rows differs by no more, since smECE_σ decreases
    in σ. A right row has the curve (1 − p)K_σ(t, p), whose second derivative in p has the norm
    (1 − p)·4φ(1)/σ² + 2√(2/π)/σ at most; a wrong row has p instead of 1 − p. Moving n rows to their
    mean changes the sum of their curves by at most half of this norm times Σ(p − p̄)²: this is
    known for right and wrong rows together, and is at most n/4 times the squared width of the cell
    for either. A curve moves by at most 2|y − p|.
    """
    curvature, slope = 4 * np.exp(-0.5) / np.sqrt(2 * np.pi) / bandwidth**2, np.sqrt(2 / np.pi)
    spread, limits, norms = groups.confidence_squared, [], []
    for hit, count, sums in _right_and_wrong(groups.moments):
        spread = spread - np.divide(sums**2, count, out=np.zeros(len(count)), where=count > 0)
        # A single row has no spread; weights do not tell how many rows there are.
        several = (count > 1) | (groups.counts.dtype.kind == "f")
        limits.append(np.where(several, count / 4 * groups.widths**2, 0.0))
        residual = np.minimum(np.abs(hit - groups.means) + groups.widths, 1.0)
        norms.append(residual * curvature + 2 * slope / bandwidth)
    # As much as possible has the larger norm.
    first = np.where(norms[0] > norms[1], *limits)
    spread = np.clip(spread, 0.0, limits[0] + limits[1])
    larger = np.minimum(spread, first)
    changes = larger * np.maximum(*norms) + (spread - larger) * np.minimum(*norms)
    sizes = groups.correct - 2 * groups.confidence_correct + groups.confidence
    return float(np.minimum(changes / 2, 2 * sizes).sum() / groups.ends[-1])


def _value(points: _Points) -> float:
    p, residuals = points.confidences, points.shares
    rough = _fixed_point(_spectrum(p, residuals, _ROUGH_CELLS), _ROUGH_RESOLUTION, precision=0.02)
    cells = 2 ** int(np.ceil(np.log2(1.1 * _RESOLUTION / max(rough, _NARROWEST))))
    cells = int(np.clip(cells, _MIN_CELLS, _MAX_CELLS))
    return _fixed_point(_spectrum(p, residuals, cells), guess=rough)


def _estimate(points: _Points, level: float | None) -> Estimate:
    value = _value(points)
    return Estimate(value) if level is None else _with_noise(value, points, level)


def smooth_residuals(spectrum: Values, bandwidth: float | Numbers) -> Values:
    """Return 1/N Σ_i K_σ(t, p_i) r_i at t = m/G, (..., G + 1), from the residuals' `spectrum`.

    The reflected kernel is a Gaussian on a circle: it multiplies cosine k by exp(−(kπσ)²/2).
    """
    narrowest = float(np.min(bandwidth))
    # Higher cosines are below rounding error.
    size = spectrum.shape[-1]
    count = min(size, int(np.ceil(_HIGHEST / (np.pi * max(narrowest, 1 / size)))))
    frequencies = np.arange(count) * np.pi * bandwidth
    cosines = np.zeros_like(spectrum)
    np.multiply(spectrum[..., :count], np.exp(-(frequencies**2) / 2), out=cosines[..., :count])
    return scipy.fft.dct(cosines, type=1, overwrite_x=True)


def _with_noise(value: float, points: _Points, level: float) -> Estimate:
    """Return the value with an interval of `level` and its noise floor.

    Smoothed residuals are a + n, with expectation a and noise n, and smECE_σ is their norm, so
    |‖a + n‖ − ‖a‖| ≤ ‖n‖ for any a. At the value's bandwidth ‖a‖ is within q of the value, with q
    the quantile `level` of ‖n‖. The bandwidth σ = ‖a‖_σ is then also within q: it is on the same
    side of the value and no farther, since ‖a‖_σ decreases in σ. The interval is conservative.

    q is the largest of three quantiles: that of the multiplier bootstrap,
    1/N Σ ε_i r_i K_σ(t, p_i) with normal ε_i; that of labels drawn from the confidences, which is
    accurate for a calibrated model with few rows; and that of the mean gap, a lower bound of the
    error, with two added successes and failures, so that q stays positive if all rows are right.
    The drawn labels, each with its own fixed point, also give the floor. Noise is simulated on a
    grid whose cells merge rows: the time does not depend on N, and the draws are always the same.
    """
    p, total = points.confidences, points.weights.sum()
    floor = _expected_floor(points)
    narrowest = max(min(value, floor), 1e-9)
    cells = int(np.clip(np.ceil(_NOISE_RESOLUTION / narrowest), *_NOISE_CELLS))
    cells = scipy.fft.next_fast_len(cells, real=True)
    where = np.rint(p * cells).astype(np.intp)
    at = np.flatnonzero(group_counts(where, cells + 1))

    def sums(values: Numbers) -> Numbers:
        return group_sums(where, values, cells + 1)[at]

    # Of the cells: the weight, the effective number of rows, mean confidence and its variance.
    totals, squares = sums(points.weights), points.squared_weights
    n = np.maximum(np.rint(totals**2 / sums(squares)), 1).astype(np.int64)
    confidences, variances = sums(points.weights * p) / totals, sums(squares * p * (1 - p))
    variances /= totals**2

    def spectra(masses: Numbers) -> NDArray[np.float32]:
        """Return the spectra (S, G + 1) of residuals (S, B) in the non-empty cells."""
        placed = np.zeros((len(masses), cells + 1), np.float32)
        placed[:, at] = masses
        placed[:, 1:-1] /= 2
        return scipy.fft.dct(placed, type=1)

    bandwidth = max(value, _NOISE_NARROWEST / cells)
    scales = np.sqrt(sums(points.squared_residuals)) / total
    normal = np.random.default_rng(0).standard_normal((_NOISE_DRAWS, len(at)), np.float32)
    multiplied = _integral_of_absolute(smooth_residuals(spectra(normal * scales), bandwidth))
    samples = drawn_gaps(n, confidences, variances, _NOISE_DRAWS)
    calibrated = [spectra(gaps * totals / total) for gaps in samples]
    norms = np.concatenate(
        [_integral_of_absolute(smooth_residuals(spectrum, bandwidth)) for spectrum in calibrated]
    )
    rows = float(total**2 / squares.sum())
    accuracy = float((points.residuals.sum() + points.weights @ p) / total)
    share = (accuracy * rows + 2) / (rows + 4)
    mean_gap = scipy.special.ndtri((1 + level) / 2) * np.sqrt(share * (1 - share) / rows)
    reach = float(max(np.quantile(multiplied, level), np.quantile(norms, level), mean_gap))
    floors = np.concatenate([_fixed_points(spectrum, floor) for spectrum in calibrated])
    # If the bandwidth b is above the value, the true one is below b or below the value + q.
    low = value - reach if bandwidth == value else 0.0
    high = max(value + reach, bandwidth)
    ends = max(low, 0.0), min(high, 1.0)
    return Estimate(value, *ends, float(floors.mean()), float(np.quantile(floors, 0.95)))


def _expected_floor(points: _Points) -> float:
    """Return about the floor: the σ that is the expected norm of a calibrated model's noise.

    The noise at t is treated as normal with variance Σ w²p(1 − p)K_σ(t, p)²/(Σw)². K_σ² is about
    K_{σ/√2}/(2σ√π).
    """
    p = points.confidences
    variances = points.squared_weights * p * (1 - p) / points.weights.sum() ** 2
    spectrum = _spectrum(p, variances, _NOISE_CELLS[1] // 4)
    narrowest = _NOISE_NARROWEST / _NOISE_CELLS[1]

    def excess(bandwidth: float) -> float:
        density = np.maximum(smooth_residuals(spectrum, bandwidth / np.sqrt(2)), 0.0)
        norm = np.sqrt(density / (np.pi**1.5 * bandwidth)).mean()
        return float(norm) - bandwidth

    if excess(narrowest) <= 0:
        return narrowest
    return float(scipy.optimize.brentq(excess, narrowest, 1.0, rtol=0.01, xtol=1e-6))


def _spectrum(p: Numbers, residuals: Numbers, cells: int) -> Numbers:
    """Return Σ_i r_i cos(kπ p_i) for k = 0 to G, (G + 1,), from residuals on a grid of G cells.

    Each residual is split among the four nearest grid points by cubic interpolation, with an error
    of (1/(σG))⁴ after smoothing; points outside [0, 1] are reflected.
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
        masses += group_sums(point, share * residuals, cells + 1)
    masses[1:-1] /= 2  # a cosine transform of type 1 counts inner points twice
    return scipy.fft.dct(masses, type=1)


def _fixed_point(
    spectrum: Values,
    resolution: int = _RESOLUTION,
    guess: float | None = None,
    precision: float = 1e-7,
) -> float:
    """Return the σ equal to smECE_σ, or smECE at the grid's smallest bandwidth if σ is below it.

    The smallest bandwidth has `resolution` cells. A good `guess` saves evaluations; `precision` is
    relative.
    """
    narrowest = resolution / (len(spectrum) - 1)

    def excess(bandwidth: float) -> float:
        return float(_integral_of_absolute(smooth_residuals(spectrum, bandwidth))) - bandwidth

    low, high = narrowest, 1.0
    if guess is not None and narrowest < guess < 1:
        # excess falls at least as fast as σ rises, so the root is between σ and σ + excess.
        change = excess(guess)
        low, high = sorted((guess, float(np.clip(guess + change, narrowest, 1.0))))
    lowest = excess(low)
    if lowest <= 0:
        return max(lowest + low, 0.0)
    if excess(high) >= 0:
        return high
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=precision))


def _fixed_points(spectra: Values, start: float) -> Numbers:
    """Return `_fixed_point` of each of `spectra` (S, G + 1), (S,), to 0.5%; `start` is a guess.

    Secant method for e = log smECE_σ − log σ over x = log σ. Since smECE_σ decreases, e falls at
    least as fast as x rises, so the root is between x and x + e.
    """
    lowest = float(np.log(_NOISE_NARROWEST / (spectra.shape[-1] - 1)))
    x = np.full(len(spectra), np.clip(np.log(start), lowest, 0.0))
    low, high = np.full_like(x, lowest), np.zeros_like(x)
    slope, step, before = np.full_like(x, -1.0), np.zeros_like(x), np.zeros_like(x)
    for _ in range(_NOISE_STEPS):
        sizes = _integral_of_absolute(smooth_residuals(spectra, np.exp(x)[:, None]))
        excess = np.log(np.maximum(sizes, np.finfo(np.float64).tiny)) - x
        low = np.maximum(low, np.where(excess > 0, x, x + excess))
        high = np.minimum(high, np.where(excess > 0, x + excess, x))
        if np.all(np.minimum(np.abs(excess), high - low) < _NOISE_PRECISION):
            break
        moved = np.divide(excess - before, step, out=slope.copy(), where=step != 0)
        slope = np.minimum(moved, -1.0)
        step = np.clip(x - excess / slope, low, high) - x
        before, x = excess, x + step
    # At the smallest bandwidth of the grid, the error there.
    return np.where(x <= lowest, np.minimum(sizes, np.exp(x)), np.exp(x))


def _integral_of_absolute(values: Values) -> Numbers:
    """Return ∫₀¹ |f| of functions that are linear between their `values` at m/G, (..., G + 1)."""
    rows = values.reshape(-1, values.shape[-1])
    sizes = np.abs(rows)
    sums = sizes.sum(axis=1) - (sizes[:, 0] + sizes[:, -1]) / 2
    # If the sign changes between a and b, the trapezoid of |f| is too large by |ab|/(|a| + |b|).
    negative = rows < 0
    row, at = np.nonzero(negative[:, 1:] != negative[:, :-1])
    a, b = sizes[row, at], sizes[row, at + 1]
    sums -= group_sums(row, a * b / (a + b), len(rows))
    return sums.reshape(values.shape[:-1]) / (values.shape[-1] - 1)
