"""Expected calibration error of the probability of class 1 of two."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.binning import BinState
from recalib.metrics.calibration_gaps import mean_gap
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import WeightedBins


class PositiveBins(BinState):
    """The sums of `BinState` with P(y = 1) as confidence p, and y = 1[label = 1]."""

    def add(self, predictions: Predictions) -> None:
        super().add(predictions.of_class(1))


class WeightedPositiveBins(WeightedBins):
    """The same sums of weighted rows."""

    def add_weighted(self, predictions: Predictions, weights: NDArray[np.float64]) -> None:
        super().add_weighted(predictions.of_class(1), weights)


class BinaryCalibrationError(StreamingMetric[PositiveBins]):
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

    def state(self, classes: int) -> PositiveBins:
        return PositiveBins(self.bins)

    def weighted_state(self, classes: int) -> WeightedPositiveBins:
        return WeightedPositiveBins(self.bins)

    def estimate_weighted(
        self, state: WeightedPositiveBins, level: float | None = None
    ) -> Estimate:
        return mean_gap(state.to_gaps(), level)

    def estimate(self, state: PositiveBins, level: float | None = None) -> Estimate:
        return mean_gap(state.to_gaps(), level)
