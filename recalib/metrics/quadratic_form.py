"""The distribution of a sum of squared normal variables minus its mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from recalib.core.arrays import Numbers

_SMALLEST = 1e-200


@dataclass(frozen=True)
class QuadraticForm:
    """The distribution of T = Σ λ((z + δ)² − 1 − δ²) with standard normal z, by its cumulants.

    c(χ²_ν − ν) with the c and ν that have the variance Σ 2λ² + 4λ²δ² and the third cumulant
    Σ 8λ³ + 24λ³δ² of T (Imhof, Biometrika 48, 1961, after Pearson). Exact for equal λ and δ = 0.
    """

    variance: float
    third_cumulant: float

    @property
    def _shape(self) -> float:
        """ν/2."""
        return 4 * self.variance * (self.variance / self.third_cumulant) ** 2

    @property
    def _scale(self) -> float:
        """2c."""
        return self.third_cumulant / (2 * self.variance)

    def at_most(self, value: float) -> float:
        """Return P(T ≤ value)."""
        ordinate = max(value / self._scale + self._shape, 0.0)
        return float(scipy.special.gammainc(self._shape, ordinate))

    def quantiles(self, probabilities: Numbers) -> Numbers:
        """Return the quantiles; 0 if the variance is 0, or so small that its powers are."""
        if self.variance < _SMALLEST:
            return np.zeros_like(probabilities)
        ordinates = scipy.special.gammaincinv(self._shape, probabilities)
        return self._scale * (ordinates - self._shape)
