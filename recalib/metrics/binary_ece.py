"""Expected calibration error of the probability of class 1 of two."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Unit
from recalib.metrics.binned import BinMetric
from recalib.metrics.calibration_gaps import Gaps, mean_gap
from recalib.metrics.predictions import Predictions
from recalib.stats.sums import Bins

Vector = NDArray[np.float64]


class BinaryCalibrationError(BinMetric):
    """Binary ECE: Σ_b n_b/N · |frequency_b − p̄_b| of class 1, for K = 2; range [0, 1].

    p is P(y = 1), in M equal-width right-closed bins of [0, 1]; frequency is the share of class 1.
    `ece` looks at the larger of the two probabilities, so that errors of rows that predict class 0
    and class 1 may cancel: with a wrong base rate it can be near 0. Ties share a bin. Biased
    upwards, see `floor`; interval and floor are those of `ece` with these bins.

    Source: Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian
    binning, AAAI 2015, whose ECE is of the probability of the positive class.
    """

    name: ClassVar[str] = "binary_ece"
    summary: ClassVar[str] = "expected calibration error of P(y = 1), equal-width bins; two classes"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "positive_bins"

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        return classes == 2

    def add(self, state: Bins, predictions: Predictions, weights: Vector | None = None) -> None:
        super().add(state, predictions.of_class(1), weights)

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        return mean_gap(Gaps.of(state), level)
