"""Expected and maximum calibration error over equal-width bins of confidence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.binning import BinState

__all__ = ["ExpectedCalibrationError", "MaximumCalibrationError"]


class ExpectedCalibrationError(StreamingMetric[BinState]):
    """Expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    Top-label, over M equal-width right-closed bins; ties need no rule, since equal confidences
    share a bin. Biased upwards: a perfectly calibrated classifier shows more than 0, the more the
    fewer rows there are. The interval is for the ECE of these bins with infinitely many rows; it
    is conservative, see `BinState.half_width`.

    Source: papers 000 eq. 3, 003 eq. 1 and 004 eq. 2 (M = 15).
    """

    name: ClassVar[str] = "ece"
    summary: ClassVar[str] = "expected calibration error, equal-width bins"
    state_kind: ClassVar[str] = "bins"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def state(self, classes: int) -> BinState:
        return BinState(self.bins)

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        value = float(np.sum(state.weights * np.abs(state.gaps)))
        if level is None:
            return Estimate(value)
        half = state.half_width(level)
        return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))


class MaximumCalibrationError(StreamingMetric[BinState]):
    """Maximum calibration error: max_b |accuracy_b − confidence_b| over filled bins; range [0, 1].

    Bins as in ECE. Biased upwards, strongly: one row alone in its bin can decide it. No interval
    in this version.

    Source: paper 004, eq. 3.
    """

    name: ClassVar[str] = "mce"
    summary: ClassVar[str] = "largest gap of any equal-width bin"
    state_kind: ClassVar[str] = "bins"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def state(self, classes: int) -> BinState:
        return BinState(self.bins)

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        return Estimate(float(np.max(np.abs(state.gaps))))
