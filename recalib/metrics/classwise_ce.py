"""Class-wise calibration error without the bias of noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.binned import ClassMetric
from recalib.metrics.intervals import interval_of_unbiased_square
from recalib.metrics.quadratic_form import QuadraticForm
from recalib.stats.class_bins import ClassBins
from recalib.stats.sums import Moments

#: Rows at the calibrated frequency that are added to each bin for its variance: a sample variance
#: of two or three rows is mostly noise, and its square, which the interval needs, is too large.
_PRIOR_ROWS = 2.0
#: A squared error below this is rounding error of cancelling sums.
_ROUNDING = 1e-14
_QUANTILES = (np.arange(200) + 0.5) / 200


class UnbiasedClasswiseError(ClassMetric):
    """Class-wise calibration error without bias, √max(θ̂, 0); range [0, 1].

    It estimates √θ, the root of the mean over classes of the squared calibration error:

        θ = 1/K Σ_k Σ_b w_bk · g_bk²

    w_bk is the share of rows whose p_k is in bin b; g_bk is the frequency of class k in these rows
    minus their mean p_k. All K classes have equal weight and the unit is that of probabilities, as
    in `classwise_ece`. With residuals r = 1[y = k] − p_k,

        θ̂ = 1/K Σ_k Σ_b n_bk/N · ((Σr)² − Σr²) / (n_bk(n_bk − 1)),

    the mean of r_i r_j over pairs of rows of a bin. The plug-in errors `classwise_ece` and
    `marginal_ece_l2` add the noise of K·M bins, Σ wv in squares, which for many classes is larger
    than the error; it depends on the unknown true frequencies, so an interval cannot subtract it. A
    product of two rows has no noise on average: the mean of θ̂ is θ, and its interval has about the
    width of its sampling deviation (docs/metrics.md). The root is biased
    downwards, and is 0 for about half of all samples of a calibrated model.

    Bins have equal width. A bin with one row has no pair: from the highest bin downwards, bins of a
    class are joined until they hold two rows, and θ is that of the joined bins. Joining bins never
    increases their error. Ties share a bin. For N = 1, θ̂ is 1/K Σr². The interval is that of
    `interval_of_unbiased_square`, for these bins with infinitely many rows. `floor` is the mean for
    a calibrated model, above 0 since a root is never negative.

    Use it where the probabilities of all classes are used, and there are many classes.

    Source: paper 002, definition 3.7 with ρ = 2; θ̂ as in Kumar, Liang and Ma, Verified uncertainty
    calibration, NeurIPS 2019, definitions 2.4 and 5.2 (there with one confidence for each bin).
    Bröcker, Climate Dynamics 39, 2012, and Ferro and Fricker, Quarterly Journal of the Royal
    Meteorological Society 138, 2012, subtract the same noise from the reliability term of the Brier
    score.
    """

    name: ClassVar[str] = "classwise_ce"
    summary: ClassVar[str] = "root of the unbiased squared calibration error, mean over classes"
    takes_weights: ClassVar[bool] = False

    def estimate(self, state: ClassBins, level: float | None = None) -> Estimate:
        bins = _Bins.of(state)
        squared = bins.squared_error()
        value = float(np.sqrt(max(squared, 0.0)))
        if level is None:
            return Estimate(value)
        low, high = (float(np.sqrt(end)) for end in bins.interval(squared, level))
        # For levels near 0 the interval may not contain the estimate.
        return Estimate(value, min(low, value), max(high, value), *bins.floor())


@dataclass(frozen=True, eq=False)
class _Bins:
    """Joined bins of all classes, each with at least one row; the sums are (B,)."""

    classes: int
    rows: int
    sums: Moments

    @classmethod
    def of(cls, state: ClassBins) -> _Bins:
        starts = _group_starts(state.count)
        sums = Moments(*(np.add.reduceat(part.ravel(), starts) for part in state.moments))
        return cls(len(state.count), state.rows, sums.select(sums.weight > 0))

    @property
    def gaps(self) -> Numbers:
        return (self.sums.correct - self.sums.confidence) / self.sums.weight

    @property
    def weights(self) -> Numbers:
        return self.sums.weight / (self.rows * self.classes)

    def squared_error(self) -> float:
        """Return θ̂; 1/K Σr² for N = 1."""
        residuals = self.sums.correct - self.sums.confidence
        if self.rows == 1:
            return float(np.sum(residuals**2)) / self.classes
        products = (residuals**2 - self.sums.residual_squares()) / (self.sums.weight - 1)
        squared = float(np.sum(products)) / (self.rows * self.classes)
        return squared if abs(squared) > _ROUNDING else 0.0

    def interval(self, squared: float, level: float) -> tuple[float, float]:
        """Return an interval for θ around θ̂."""
        n, p, gaps = self.sums.weight, self.sums.confidence / self.sums.weight, self.gaps
        # 4/K as in `Gaps.from_sums`: q is neither 0 nor 1 if all rows are right.
        extra = 4 / self.classes

        def binomial(frequencies: Numbers) -> Numbers:
            q = (frequencies * n + _PRIOR_ROWS * p + extra) / (n + _PRIOR_ROWS + 2 * extra)
            return np.asarray(q * (1 - q))

        def variances_under(sizes: Numbers) -> Numbers:
            """Return the variances under gaps of these sizes, as the function `variances_under`."""
            tested = binomial(np.clip(p + np.copysign(sizes, gaps), 0, 1))
            return np.asarray(variances * np.where(sizes > 0, tested / observed, 1.0))

        observed = binomial(self.sums.correct / n)
        sample = (self.sums.residual_squares() - n * gaps**2) / (n + _PRIOR_ROWS)
        variances = np.maximum(observed, sample) / n
        return interval_of_unbiased_square(
            squared,
            self.weights,
            gaps,
            variances,
            level,
            rows=self.rows,
            classes=self.classes,
            under=variances_under,
        )

    def floor(self) -> tuple[float, float]:
        """Return mean and 95th percentile of the value for a calibrated model.

        Residuals of a row sum to 0 over classes, which increases the variance of θ̂ by K/(K − 1) if
        all pairs of classes have the same covariance: exact for K = 2.
        """
        scale = self.sums.weight * self.rows * self.classes
        noise = self.sums.calibrated_squares() / scale
        copies = self.classes / (self.classes - 1)
        form = QuadraticForm(
            2 * copies * float(noise @ noise), 8 * copies**2 * float(noise**2 @ noise)
        )
        squares = form.quantiles(_QUANTILES) + (float(noise.sum()) if self.rows == 1 else 0.0)
        errors = np.sqrt(np.clip(squares, 0, 1))
        return float(errors.mean()), float(np.quantile(errors, 0.95))


def _group_starts(count_km: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the flat indices in (K, M) at which groups of bins with at least two rows start.

    From the highest bin of each class downwards; a remainder joins the lowest group.
    """
    starts = np.zeros(count_km.shape, bool)
    total = np.zeros(len(count_km), np.int64)
    for b in reversed(range(count_km.shape[1])):
        total += count_km[:, b]
        starts[:, b] = total > 1
        total[starts[:, b]] = 0
    remainder = np.flatnonzero(total > 0)
    starts[remainder, starts[remainder].argmax(axis=1)] = False
    starts[:, 0] = True
    return np.flatnonzero(starts)
