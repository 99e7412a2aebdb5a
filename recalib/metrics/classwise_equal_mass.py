"""Class-wise calibration error over bins of equal counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions

__all__ = ["ClasswiseEqualMassError"]


class ClasswiseEqualMassError(Metric):
    """Adaptive class-wise ECE: 1/K Σ_k Σ_b n_b/N · |frequency_bk − confidence_bk|; range [0, 1].

    As `classwise_ece`, with each class's column of probabilities sorted and cut into M runs whose
    lengths differ by at most one (N where N < M). Rows of equal probability may be cut apart; so
    that their order in the file does not matter, each counts with the frequency of all of them.
    Biased upwards. No interval. K sorts of N rows: measured when asked for by name.

    Source: paper 002, section 5.1 and App. A (cwECE with adaptive binning).
    """

    name: ClassVar[str] = "classwise_ece_equal_mass"
    summary: ClassVar[str] = "classwise_ece over bins of equal counts"
    on_request: ClassVar[bool] = True

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        rows, classes = predictions.probabilities.shape
        count = min(self.bins, rows)
        starts = np.arange(count) * rows // count
        total = 0.0
        for k in range(classes):
            column = predictions.probabilities[:, k]
            order = np.argsort(column)
            residuals = _residuals(column[order], predictions.labels[order] == k)
            total += float(np.abs(np.add.reduceat(residuals, starts)).sum())
        return Estimate(total / (rows * classes))


def _residuals(p: Floats, occurred: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return frequency − p of ascending p (N,), by the frequency of all rows of the same p."""
    firsts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    sizes = np.diff(firsts, append=len(p))
    frequencies = np.add.reduceat(occurred.astype(np.float64), firsts) / sizes
    return np.repeat(frequencies, sizes) - p
