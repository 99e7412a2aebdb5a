"""Class-wise expected calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers
from recalib.metrics.base import Estimate, State, StreamingMetric
from recalib.metrics.binning import bin_of
from recalib.metrics.predictions import Predictions, row_chunks

__all__ = ["ClasswiseError", "ClasswiseState"]


class ClasswiseState(State):
    """Σp and Σ1[y = k] for each class k and equal-width bin of p_k; arrays of (K, M)."""

    def __init__(self, classes: int, bins: int) -> None:
        self.bins = bins
        self.rows = 0
        self.confidence = np.zeros((classes, bins))
        self.occurred = np.zeros((classes, bins))

    def add(self, predictions: Predictions) -> None:
        probabilities, labels = predictions.probabilities, predictions.labels
        if len(labels) == 0:
            return
        self.rows += len(labels)
        self._add_confidences(probabilities)
        self.occurred += self._by_cell(labels, probabilities[np.arange(len(labels)), labels])

    def merge(self, other: ClasswiseState) -> None:
        if other.confidence.shape != self.confidence.shape:
            raise ValueError("states of different classes or bins do not add up")
        self.rows += other.rows
        self.confidence += other.confidence
        self.occurred += other.occurred

    def _add_confidences(self, probabilities: Floats) -> None:
        """Add probabilities (n, K).

        Of 1,000 classes, few have a probability over 1/M in any row: only those are binned, and
        the first bin's sum is what is left of each column's.
        """
        classes = probabilities.shape[1]
        totals = np.zeros(classes)
        columns, values = [], []
        for rows in row_chunks(probabilities.shape):
            p = probabilities[rows]
            totals += p.sum(axis=0, dtype=np.float64)
            # Flat, since NumPy finds what is true of a plane ten times as slowly.
            row, column = np.divmod(np.flatnonzero(p > p.dtype.type(1 / self.bins)), classes)
            columns.append(column)
            values.append(p[row, column])
        large = np.concatenate(values)
        binned = self._by_cell(np.concatenate(columns), large, weights=large)
        binned[:, 0] += totals - binned.sum(axis=1)
        self.confidence += binned

    def _by_cell(
        self, columns: Integers, values: Floats, weights: Floats | None = None
    ) -> NDArray[np.float64]:
        """Return counts, or sums of `weights`, by column and by bin of `values`; all are (n,)."""
        cells = columns * self.bins + bin_of(values, self.bins)
        sums = np.bincount(cells, weights, self.confidence.size)
        return sums.reshape(self.confidence.shape).astype(np.float64, copy=False)


class ClasswiseError(StreamingMetric[ClasswiseState]):
    """Class-wise ECE: 1/K Σ_k Σ_b n_bk/N · |frequency_bk − confidence_bk|; range [0, 1].

    For each class, its column of probabilities against how often it occurred, over M equal-width
    right-closed bins; all K columns count alike, and ties need no rule. With many classes it is
    small by construction, since most probabilities are. Biased upwards. No interval in this
    version.

    Source: paper 002, section 3.3; paper 000, eq. 7 with p = 1.
    """

    name: ClassVar[str] = "classwise_ece"
    summary: ClassVar[str] = "mean over classes of each column's calibration error"
    state_kind: ClassVar[str] = "classwise"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def state(self, classes: int) -> ClasswiseState:
        return ClasswiseState(classes, self.bins)

    def estimate(self, state: ClasswiseState, level: float | None = None) -> Estimate:
        gaps = np.abs(state.occurred - state.confidence).sum(axis=1) / state.rows
        return Estimate(float(gaps.mean()))
