"""Confidence intervals and noise floors of kernel calibration errors.

A kernel mean is linear in the outcomes: m̂_j = Σ_i w_ji y_i, with weights independent of the
labels. So an observed gap is a_j + n_j, where a_j is its value for infinitely many rows with this
bandwidth, and n_j is noise of mean 0. Shapes: N rows, J of them at which noise is simulated, S
draws, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Integers, Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.kernels import kernel_weights, spread_rows

_DRAWS = 200
#: Rows at which noise is simulated.
_PLACES = 128


@dataclass(frozen=True, eq=False)
class KernelEstimates:
    """Kernel estimates of outcome frequencies at each row."""

    #: (N, C), the points that the kernels compare.
    rows: Numbers
    bandwidth: float
    #: (D,), the classes of the outcomes; 1 for a single event.
    outcomes: NDArray[np.intp]
    #: (N, D), their probabilities.
    probabilities: Numbers
    #: (N, D), leave-one-out kernel means.
    means: Numbers
    #: (N,), the mean kernel weight of each row.
    weight: Numbers

    @property
    def gaps(self) -> Numbers:
        """The gaps (N, D)."""
        return self.means - self.probabilities


class _Noise:
    """Draws (S,) of noise and of the error of a calibrated model, summed over outcomes."""

    def __init__(self, labels: Integers, probabilities: Numbers, extra: float) -> None:
        rng = np.random.default_rng(0)
        self._labels = labels
        #: The correction of squared residuals for rare events (Agresti and Coull, 1998).
        self._correction = extra / len(labels)
        self.normal = rng.standard_normal((len(labels), _DRAWS))
        self.labels = _drawn_labels(probabilities, rng)
        self.multiplier = np.zeros(_DRAWS)
        self.calibrated = np.zeros(_DRAWS)
        self.floors = np.zeros(_DRAWS)
        #: N times the variance of the mean gap if outcomes were independent.
        self.variance = 0.0

    def add(self, smoothed: KernelEstimates) -> None:
        """Add `|ℓ + n| − ℓ` and the calibrated `|gap|`, averaged over J rows and summed over D."""
        residuals = (self._labels[:, None] == smoothed.outcomes) - smoothed.means
        sizes = np.sqrt(residuals**2 + self._correction)
        self.variance += float(smoothed.weight**2 @ (sizes**2).sum(axis=1))
        places = spread_rows(smoothed.rows, _PLACES)
        reach = np.sqrt(2 * np.log(max(len(places) * len(smoothed.outcomes), 2)))
        for rows, weights in kernel_weights(smoothed.rows, places, smoothed.bandwidth):
            errors = np.sqrt(weights**2 @ sizes**2)
            for d, outcome in enumerate(smoothed.outcomes):
                gaps = smoothed.gaps[rows, d]
                signs = np.where(gaps < 0, -1.0, 1.0)[:, None]
                least = np.maximum(np.abs(gaps) - reach * errors[:, d], 0)[:, None]

                def excess(
                    noise: Numbers, signs: Numbers = signs, least: Numbers = least
                ) -> Numbers:
                    total: Numbers = (np.abs(least + signs * noise) - least).sum(axis=0)
                    return total / len(places)

                smoothed_labels = weights @ (self.labels == outcome).astype(np.float64)
                expected = weights @ smoothed.probabilities[:, d]
                self.multiplier += excess(weights @ (self.normal * sizes[:, d, None]))
                self.calibrated += excess(smoothed_labels - expected[:, None])
                distances = np.abs(smoothed_labels - smoothed.probabilities[rows, d, None])
                self.floors += distances.sum(axis=0) / len(places)


def kernel_error(
    parts: list[KernelEstimates],
    labels: Integers,
    probabilities: Numbers,
    level: float | None,
    *,
    mean: bool = False,
) -> Estimate:
    """Return the mean over rows of θ = Σ|a + n| over outcomes; of a level its interval and floor.

    The interval is for kernels with the same bandwidths and infinitely many rows:

    - |a + n| is at least σ(a + n) with σ the sign of a, whose mean is |a|. So the upper end is the
      value plus z standard errors of a mean of gaps with the worst signs.
    - |a + n| − |a| decreases in |a|, which is at least ℓ: the observed gap minus √(2 ln JD)
      standard errors. So the lower end is the value minus a quantile of the mean of |ℓ + n| − ℓ.
      It is the larger quantile of two simulations: multipliers, Σ w_ji ε_i r_i with normal ε_i and
      residuals r_i = y_i − m̂_i, which include the effect of the sampled rows; and labels drawn from
      the probabilities, which is accurate for a calibrated model with few neighbours.

    The drawn labels also give the floor. Noise is simulated at 128 evenly spread rows, in time of
    order N, less than the N² of the value from a few thousand rows on.

    Parameters
    ----------
    labels: (N,), classes; for a single event, 1 if it occurred.
    probabilities: (N, K), from which the labels of a calibrated model are drawn.
    mean: true if θ is the mean over outcomes instead of the sum.
    """
    rows, classes = probabilities.shape
    outcomes = sum(len(smoothed.outcomes) for smoothed in parts)
    share = 1 / outcomes if mean else 1.0
    distances = share * sum(
        (np.abs(smoothed.gaps).sum(axis=1) for smoothed in parts), np.zeros(rows)
    )
    value = float(distances.mean())
    if level is None:
        return Estimate(value)
    largest = 1.0 if mean or outcomes == 1 else 2.0
    noise = _Noise(labels, probabilities, 2.0 if outcomes == 1 else 4 / classes)
    if rows == 1:
        floors = _lone_row(noise.labels[0], parts, share)
        return Estimate(value, 0.0, largest, *_floor(floors))
    for smoothed in parts:
        noise.add(smoothed)
    direction = (distances - value) @ noise.normal / rows
    # Residuals of a row sum to 0 over outcomes: see `copies` of `interval_of_mean_gap`.
    variance = min(outcomes, 2) * share**2 * noise.variance + float(np.var(distances)) / rows
    tail = (1 - level) / 2
    excess = max(
        np.quantile(share * noise.multiplier + direction, 1 - tail),
        np.quantile(share * noise.calibrated, 1 - tail),
    )
    low = min(max(value - float(excess), 0.0), value)
    high = value - float(scipy.special.ndtri(tail)) * float(np.sqrt(variance))
    return Estimate(value, low, max(min(high, largest), value), *_floor(share * noise.floors))


def _drawn_labels(probabilities: Numbers, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return S labels for each row, (N, S), drawn from its probabilities."""
    cumulative = np.cumsum(probabilities, axis=1)
    uniform = rng.random((len(cumulative), _DRAWS)) * cumulative[:, -1:]
    samples = [
        np.searchsorted(row, u, side="right") for row, u in zip(cumulative, uniform, strict=True)
    ]
    return np.minimum(samples, probabilities.shape[1] - 1).astype(np.int32)


def _lone_row(labels: NDArray[np.int32], parts: list[KernelEstimates], share: float) -> Numbers:
    """Return the error of a single row for each of its labels (S,)."""
    total = np.zeros(len(labels))
    for smoothed in parts:
        total += np.abs((labels[:, None] == smoothed.outcomes) - smoothed.probabilities[0]).sum(
            axis=1
        )
    return share * total


def _floor(errors: Numbers) -> tuple[float, float]:
    return float(errors.mean()), float(np.quantile(errors, 0.95))
