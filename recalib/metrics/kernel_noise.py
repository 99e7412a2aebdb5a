"""By how much an error by kernels may be off, and what it shows where nothing is wrong.

A kernel's mean is linear in the outcomes: m̂_j = Σ_i w_ji y_i, of weights that depend on no label.
So a gap is found as a_j + n_j, where a_j is what infinitely many rows would show under kernels of
this bandwidth, and n_j is noise of mean 0. Shapes: N rows, J of them at which noise is drawn, S
draws, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.arrays import Integers
from recalib.metrics.base import Estimate
from recalib.metrics.kernels import kernel_weights, spread_rows

__all__ = ["Smoothed", "estimate_with_noise"]

Values = NDArray[np.float64]

_DRAWS = 200
#: Rows at which noise is drawn.
_PLACES = 128


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The frequencies near each row of some outcomes that share their kernels."""

    #: (N, C), what kernels compare.
    rows: Values
    bandwidth: float
    #: (D,), classes; of one event, 1.
    outcomes: NDArray[np.intp]
    #: (N, D), their probabilities.
    probabilities: Values
    #: (N, D), the kernels' means, each row left out of its own.
    means: Values
    #: (N,), each row's mean weight in them.
    weight: Values

    @property
    def gaps(self) -> Values:
        """(N, D)."""
        return self.means - self.probabilities


class _Noise:
    """Draws (S,) of noise and of a calibrated model's error, both summed over outcomes."""

    def __init__(self, labels: Integers, probabilities: Values, extra: float) -> None:
        rng = np.random.default_rng(0)
        self._labels = labels
        #: What rows do not show of a residual's square, as Agresti and Coull (1998) have it.
        self._unseen = extra / len(labels)
        self.normal = rng.standard_normal((len(labels), _DRAWS))
        self.labels = _drawn_labels(probabilities, rng)
        self.found = np.zeros(_DRAWS)
        self.calibrated = np.zeros(_DRAWS)
        self.floors = np.zeros(_DRAWS)
        #: N times the variance of the mean gap, were outcomes independent.
        self.variance = 0.0

    def add(self, one: Smoothed) -> None:
        """Add |ℓ + n| − ℓ and the calibrated |gap|, their means over J rows and sums over D."""
        residuals = (self._labels[:, None] == one.outcomes) - one.means
        sizes = np.sqrt(residuals**2 + self._unseen)
        self.variance += float(one.weight**2 @ (sizes**2).sum(axis=1))
        places = spread_rows(one.rows, _PLACES)
        reach = np.sqrt(2 * np.log(max(len(places) * len(one.outcomes), 2)))
        for rows, weights in kernel_weights(one.rows, places, one.bandwidth):
            errors = np.sqrt(weights**2 @ sizes**2)
            for d, outcome in enumerate(one.outcomes):
                gaps = one.gaps[rows, d]
                signs = np.where(gaps < 0, -1.0, 1.0)[:, None]
                least = np.maximum(np.abs(gaps) - reach * errors[:, d], 0)[:, None]

                def off(noise: Values, signs: Values = signs, least: Values = least) -> Values:
                    total: Values = (np.abs(least + signs * noise) - least).sum(axis=0)
                    return total / len(places)

                drawn = weights @ (self.labels == outcome).astype(np.float64)
                expected = weights @ one.probabilities[:, d]
                self.found += off(weights @ (self.normal * sizes[:, d, None]))
                self.calibrated += off(drawn - expected[:, None])
                distances = np.abs(drawn - one.probabilities[rows, d, None])
                self.floors += distances.sum(axis=0) / len(places)


def estimate_with_noise(
    value: float,
    parts: list[Smoothed],
    labels: Integers,
    probabilities: Values,
    level: float,
    *,
    mean: bool = False,
) -> Estimate:
    """Return the value with an interval of `level` and with its floor.

    The value is the mean over rows of θ = Σ|a + n| over outcomes. The interval is for kernels of
    the bandwidths that were found, with infinitely many rows:

    - |a + n| is at least σ(a + n) with σ the sign of a, whose mean is |a|: the upper end is the
      value and z standard errors of a mean of gaps with the worst of signs;
    - |a + n| − |a| falls in |a|, which is at least ℓ, what is found less √(2 ln JD) of its standard
      errors: the lower end is the value less the quantile of the mean of |ℓ + n| − ℓ. Noise is
      drawn twice, and the larger quantile taken: by multipliers, Σ w_ji ε_i r_i with normal ε_i
      and residuals r_i = y_i − m̂_i, which also show what the choice of rows changes; and of labels
      drawn as probabilities say, which is right where nothing is wrong and neighbours are few.

    The same labels are the floor. All is drawn at 128 rows, evenly spread, from all N, in time of
    order N: less than the value's N² from a few thousand rows on.

    Parameters
    ----------
    labels: (N,), classes; of one event, 1 where it occurred.
    probabilities: (N, K), what a calibrated model's labels are drawn from.
    mean: whether θ is the mean over outcomes instead of the sum.
    """
    rows, classes = probabilities.shape
    outcomes = sum(len(one.outcomes) for one in parts)
    share = 1 / outcomes if mean else 1.0
    largest = 1.0 if mean or outcomes == 1 else 2.0
    noise = _Noise(labels, probabilities, 2.0 if outcomes == 1 else 4 / classes)
    if rows == 1:
        floors = _lone_row(noise.labels[0], parts, share)
        return Estimate(value, 0.0, largest, *_floor(floors))
    for one in parts:
        noise.add(one)
    distances = share * sum((np.abs(one.gaps).sum(axis=1) for one in parts), np.zeros(rows))
    chosen = (distances - distances.mean()) @ noise.normal / rows
    # Errors of a row add up to 0 over outcomes: see `copies` of `interval_of_mean_gap`.
    variance = min(outcomes, 2) * share**2 * noise.variance + float(np.var(distances)) / rows
    tail = (1 - level) / 2
    off = max(
        np.quantile(share * noise.found + chosen, 1 - tail),
        np.quantile(share * noise.calibrated, 1 - tail),
    )
    low = min(max(value - float(off), 0.0), value)
    high = value - float(scipy.special.ndtri(tail)) * float(np.sqrt(variance))
    return Estimate(value, low, max(min(high, largest), value), *_floor(share * noise.floors))


def _drawn_labels(probabilities: Values, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return S labels of each row, (N, S), drawn as its probabilities say."""
    upto = np.cumsum(probabilities, axis=1)
    uniform = rng.random((len(upto), _DRAWS)) * upto[:, -1:]
    drawn = [np.searchsorted(one, u, side="right") for one, u in zip(upto, uniform, strict=True)]
    labels: NDArray[np.int32] = np.minimum(drawn, probabilities.shape[1] - 1).astype(np.int32)
    return labels


def _lone_row(labels: NDArray[np.int32], parts: list[Smoothed], share: float) -> Values:
    """Return its error, its own label for its frequency, of each of the labels (S,)."""
    total = np.zeros(len(labels))
    for one in parts:
        total += np.abs((labels[:, None] == one.outcomes) - one.probabilities[0]).sum(axis=1)
    return share * total


def _floor(errors: Values) -> tuple[float, float]:
    return float(errors.mean()), float(np.quantile(errors, 0.95))
