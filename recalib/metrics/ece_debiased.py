"""Debiased ℓ2 calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate
from recalib.metrics.binned import BinMetric
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import crossing, variances_under
from recalib.stats.sums import Bins, Moments

#: A squared error below this is rounding error of cancelling sums.
_ROUNDING = 1e-14


class DebiasedError(BinMetric):
    """Root of the unbiased squared calibration error, √max(θ̂, 0); range [0, 1].

    Top-label, over M equal-width right-closed bins. It estimates √θ, the ℓ2 calibration error of
    these bins with infinitely many rows: θ = Σ_b w_b g_b², where w_b is a bin's share of all rows
    and g_b its accuracy minus its mean confidence. With residuals r = y − p,

        θ̂ = Σ_b w_b · ((Σr)² − Σr²) / (n_b(n_b − 1)),  w_b = n_b/Σn,

    the mean of r_i r_j over pairs of rows of a bin. θ̂ is unbiased, while the plain sum of squared
    gaps is too large by their variances. If all rows of a bin have one confidence, θ̂ is the
    debiased estimator of Kumar et al. Its root is biased downwards, and is 0 for about half of all
    samples of a calibrated model.

    A single row in a bin has no pair and is left out; if no bin holds a pair, all rows form one
    bin. For N = 1 the value is |r|. Ties share a bin. The interval inverts a test, see `_interval`.
    `floor` is the mean for a calibrated model, above 0 since a root is never negative.

    Use it where classifiers are compared on few rows, or on different numbers of rows.

    Source: Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, definition 5.2
    (there with one confidence for each bin); paper 000, App. E, cites it.
    """

    name: ClassVar[str] = "ece_debiased"
    summary: ClassVar[str] = "root of the unbiased squared calibration error, equal-width bins"
    takes_weights: ClassVar[bool] = False

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        sums = _with_pairs(state.moments)
        squared = _squared_error(sums)
        value = float(np.sqrt(max(squared, 0.0)))
        if level is None:
            return Estimate(value)
        low, high = (float(np.sqrt(end)) for end in _interval(sums, squared, level))
        # For levels near 0 the interval may not contain the estimate.
        return Estimate(value, min(low, value), max(min(high, 1.0), value), *_floor(sums))


def _with_pairs(sums: Moments) -> Moments:
    """Return the bins with at least two rows; if there are none, one bin with all rows."""
    paired = sums.weight > 1
    if paired.any():
        return sums.select(paired)
    return Moments(*(values.sum(keepdims=True) for values in sums))


def _squared_error(sums: Moments) -> float:
    """Return θ̂; for N = 1, r²."""
    n, residuals = sums.weight, sums.correct - sums.confidence
    if n.sum() == 1:
        return float(residuals[0] ** 2)
    products = (residuals**2 - sums.residual_squares()) / (n - 1)
    squared = float(products.sum() / n.sum())
    return squared if abs(squared) > _ROUNDING else 0.0


def _floor(sums: Moments) -> tuple[float, float]:
    """Return mean and 95th percentile of the error of a calibrated model, by `noise_floor`.

    Σr² is approximated by Σp(1 − p) + n·g(1 − 2p̄), which is exact if a bin has one confidence.
    """
    gaps = Gaps.from_moments(sums, sums)
    n, noise = gaps.counts, gaps.calibrated_variances
    # A single row has no pair; its error is |r|.
    pairs = np.maximum(n - 1, 1)
    counted = 0.0 if n.sum() == 1 else 1.0

    def error(sample: NDArray[np.float64]) -> NDArray[np.float64]:
        residuals = n * noise + sample * (1 - 2 * gaps.confidences)
        squares = (n * sample**2 - counted * residuals) / pairs
        return np.sqrt(np.maximum(squares @ gaps.weights, 0.0))

    return gaps.floor(error)


def _interval(sums: Moments, squared: float, level: float) -> tuple[float, float]:
    """Return an interval for θ: all values that a test of θ̂ does not reject.

    With v the variances of the bins' gaps, t = θ̂ + Σwv is Σwĝ², with mean θ + Σwv and variance
    2Σw²v² + 4θ·s + θ²·k/N. T is treated as a gamma variable with these moments, Patnaik's
    approximation (1949) of a noncentral χ². A normal approximation would cover the truth in only
    78% of cases near θ = 0, where t is skewed. s is the mean of w·v weighted by the bins' parts of
    θ, and at least its value for equal parts; k/N is the variance of θ due to random bin sizes.
    Both are computed from the observed gaps. Variances are those under the tested θ, see
    `variances_under`. The ends have P(T ≥ t) = α/2 and P(T ≤ t) = α/2. The upper end uses
    max(θ̂, 0), so a very small t does not give an interval of width 0.
    """
    n = sums.weight
    w, gaps = n / n.sum(), (sums.correct - sums.confidence) / n
    v = _variances(sums, gaps)
    under = variances_under(n, sums.confidence / n, gaps, v)
    parts = np.maximum(gaps**2 - v, 0)
    total = float(np.sum(w * parts))
    share_variance = 0.0
    if total > 0:
        share_variance = float(np.sum(w * parts**2) / total**2 - 1) / int(n.sum())

    def gamma(theta: float, estimate: float) -> tuple[float, float]:
        """Return the shape, and t divided by the scale."""
        wv = w * (under(np.sqrt(theta / total * parts)) if total > 0 else v)
        noise, spread = float(wv.sum()), float(np.sum(wv**2) / wv.sum())
        if total > 0:
            spread = max(spread, float(np.sum(w * parts * wv)) / total)
        mean = theta + noise
        variance = 2 * float(np.sum(wv**2)) + 4 * theta * spread + share_variance * theta**2
        return mean**2 / variance, max(estimate + noise, 0.0) * mean / variance

    tail = (1 - level) / 2
    return (
        crossing(lambda theta: scipy.special.gammaincc(*gamma(theta, squared)), tail, 0.0),
        crossing(lambda theta: scipy.special.gammainc(*gamma(theta, max(squared, 0))), tail, 1.0),
    )


def _variances(sums: Moments, gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of each gap, never 0.

    The larger of the sample variance, (Σr²/n − g²)/(n − 1), and q(1 − q)/n with
    q = (Σy + 2)/(n + 4) (Agresti and Coull, 1998), which matters in bins with few errors.
    """
    n = sums.weight
    sample = (sums.residual_squares() / n - gaps**2) / np.maximum(n - 1, 1)
    q = (sums.correct + 2) / (n + 4)
    return np.maximum(sample, q * (1 - q) / n)
