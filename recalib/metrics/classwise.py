"""Class-wise calibration errors: each class's probabilities against its frequency."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.metrics.base import Estimate, State, StreamingMetric, Unit
from recalib.metrics.binning import bin_indices
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.metrics.predictions import Predictions, row_chunks
from recalib.metrics.weighted import WeightedClasses


class ClasswiseState(State):
    """Sums for each class k and equal-width bin of p = p_k; arrays of (K, M).

    With y = 1[label = k]: `count`, Σp, Σp², Σy and Σpy.
    """

    sums: ClassVar[tuple[str, ...]] = (
        "rows",
        "count",
        "confidence",
        "confidence_squared",
        "occurred",
        "confidence_occurred",
    )

    def __init__(self, classes: int, bins: int) -> None:
        self.bins = bins
        self.rows = 0
        self.count = np.zeros((classes, bins), np.int64)
        self.confidence = np.zeros((classes, bins))
        self.confidence_squared = np.zeros((classes, bins))
        self.occurred = np.zeros((classes, bins))
        self.confidence_occurred = np.zeros((classes, bins))

    def add(self, predictions: Predictions) -> None:
        probabilities, labels = predictions.probabilities, predictions.labels
        if len(labels) == 0:
            return
        self.rows += len(labels)
        self._add_confidences(probabilities)
        p = probabilities[np.arange(len(labels)), labels]
        cells = self._cells(labels, p)
        self.occurred += self._sums(cells)
        self.confidence_occurred += self._sums(cells, p)

    def _add_confidences(self, probabilities: Floats) -> None:
        """Add probabilities (n, K).

        Few of 1,000 classes have a probability above 1/M in any row. Only those are binned; the
        count and sums of the first bin are the column's totals minus the other bins.
        """
        classes = probabilities.shape[1]
        totals, squares = np.zeros(classes), np.zeros(classes)
        columns, values = [], []
        for rows in row_chunks(probabilities.shape):
            p = probabilities[rows]
            # Products with ones take half of the time of sums over the first axis.
            ones, wide = np.ones(len(p)), p.astype(np.float64)
            totals += ones @ wide
            squares += ones @ np.multiply(wide, wide, out=wide)
            # Flat: `np.nonzero` of a 2-D array is ten times slower.
            row, column = np.divmod(np.flatnonzero(p > p.dtype.type(1 / self.bins)), classes)
            columns.append(column)
            values.append(p[row, column])
        large = np.concatenate(values)
        cells = self._cells(np.concatenate(columns), large)
        large = large.astype(np.float64, copy=False)
        for total, sums, weights in (
            (totals, self.confidence, large),
            (squares, self.confidence_squared, large * large),
        ):
            binned = self._sums(cells, weights)
            binned[:, 0] += total - binned.sum(axis=1)
            sums += binned
        counts = self._sums(cells).astype(np.int64)
        counts[:, 0] += len(probabilities) - counts.sum(axis=1)
        self.count += counts

    def _sums(self, cells: Integers, weights: Floats | None = None) -> NDArray[np.float64]:
        """Return the sums of `weights` (n,), or the counts, in each cell: (K, M)."""
        # For empty input, bincount returns integers.
        sums = np.bincount(cells, weights, self.count.size).astype(np.float64, copy=False)
        return sums.reshape(self.count.shape)

    def _cells(self, columns: Integers, values: Floats) -> Integers:
        """Return the flat index in (K, M) of each column and the bin of its value; all are (n,)."""
        cells: Integers = columns * self.bins + bin_indices(values, self.bins)
        return cells

    def column_errors(self) -> NDArray[np.float64]:
        """Return the calibration error of each class's probability, (K,); at least one row."""
        errors: NDArray[np.float64] = np.abs(self.occurred - self.confidence).sum(axis=1)
        return errors / self.rows

    def to_gaps(self) -> Gaps:
        """Return the bins of all classes together; each class has weight 1/K."""
        # Σp of the first bin is a difference, which may be −1e-17 for probabilities of 0.
        sums = np.maximum(self.confidence, 0.0)
        squares = self.confidence_squared, self.confidence_occurred
        return Gaps.from_sums(
            self.count, sums, self.occurred, squares=squares, classes=len(self.count)
        )


class ClasswiseError(StreamingMetric[ClasswiseState]):
    """Class-wise ECE: 1/K Σ_k Σ_b n_bk/N · |frequency_bk − confidence_bk|; range [0, 1].

    For each class, its probabilities against its frequency, over M equal-width right-closed bins.
    All K classes have equal weight. Ties share a bin. With many classes the value is small because
    most probabilities are small. Biased upwards, see `floor`. The interval is for these bins with
    infinitely many rows, see `interval_of_mean_gap`.

    Source: paper 002, definition 3.7 with ρ = 1, and App. A.1.
    """

    name: ClassVar[str] = "classwise_ece"
    summary: ClassVar[str] = "mean over classes of each column's calibration error"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "classwise"

    def state(self, classes: int) -> ClasswiseState:
        return ClasswiseState(classes, self.bins)

    def weighted_state(self, classes: int) -> WeightedClasses:
        return WeightedClasses(classes, self.bins)

    def estimate_weighted(self, state: WeightedClasses, level: float | None = None) -> Estimate:
        return mean_gap(state.to_gaps(), level)

    def estimate(self, state: ClasswiseState, level: float | None = None) -> Estimate:
        return mean_gap(state.to_gaps(), level)


class MarginalError(StreamingMetric[ClasswiseState]):
    """ℓ2 marginal error: √(1/K Σ_k Σ_b n_bk/N · (frequency_bk − confidence_bk)²); range [0, 1].

    The root of the mean squared class-wise gap; all classes have equal weight. Bins, ties and bias
    as in `classwise_ece`, which is never larger. Bins have equal width; the paper's table has bins
    of equal counts, which need a sort of every column. The interval is that of
    `interval_of_mean_squared_gap`.

    Source: Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, definition 2.4,
    where class weights are free; paper 000, App. J, which gives no formula.
    """

    name: ClassVar[str] = "marginal_ece_l2"
    summary: ClassVar[str] = "root mean squared gap over all classes and their bins"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "classwise"

    def state(self, classes: int) -> ClasswiseState:
        return ClasswiseState(classes, self.bins)

    def weighted_state(self, classes: int) -> WeightedClasses:
        return WeightedClasses(classes, self.bins)

    def estimate_weighted(self, state: WeightedClasses, level: float | None = None) -> Estimate:
        return root_mean_squared_gap(state.to_gaps(), level)

    def estimate(self, state: ClasswiseState, level: float | None = None) -> Estimate:
        return root_mean_squared_gap(state.to_gaps(), level)
