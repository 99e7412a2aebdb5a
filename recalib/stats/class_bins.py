"""Sums over rows in bins of the probability of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.stats.bin_indices import bin_indices
from recalib.stats.groups import group_counts, group_sums, row_chunks
from recalib.stats.sums import BinSums, Moments, Weights


class ClassBins(BinSums):
    """The sums in M equal-width bins of p_k, with y = 1[label = k], of each class k; (K, M)."""

    def __init__(self, classes: int, bins: int, *, weighted: bool = False) -> None:
        super().__init__((classes, bins), weighted)
        self.bins = bins

    @property
    def rows(self) -> int:
        """N."""
        return int(self.count[0].sum())

    def column_errors(self) -> Numbers:
        """Return the calibration error of each class's probability, (K,); at least one row."""
        errors: Numbers = np.abs(self.correct - self.confidence).sum(axis=1)
        errors /= self.moments.weight[0].sum()
        return errors

    def add(self, probabilities: Floats, labels: Integers, weights: Numbers | None = None) -> None:
        """Add rows by their probabilities (n, K), labels and weights, (n,).

        Few of 1,000 classes have a probability above 1/M in any row. Only those are binned; the
        others are in the first bin.
        """
        weights = self.weights_of(len(labels), weights)
        scales = np.ones((1, len(labels)))
        if weights is not None:
            scales = np.stack([weights, weights**2])
        row, column, first = _large_and_first_bins(probabilities, scales, 1 / self.bins)
        p, of_label = probabilities[row, column], probabilities[np.arange(len(labels)), labels]
        cells, hits = self._cells(column, p), self._cells(labels, of_label)
        counts = group_counts(cells, self.count.size).reshape(self.count.shape)
        counts[:, 0] = len(labels) - counts.sum(axis=1)
        if weights is not None:
            self.count += counts
        states = (self.moments, self.squared)[: len(scales)]
        for state, w, (of_w, of_wp, of_wpp) in zip(states, scales, first, strict=True):
            weight: Weights = counts
            wp = p.astype(np.float64)
            if weights is not None:
                weight, wp = self._sums(cells, w[row], of_w), w[row] * wp
            state.add(
                Moments(
                    weight,
                    self._sums(cells, wp, of_wp),
                    self._sums(cells, wp * p, of_wpp),
                    self._sums(hits, w),
                    self._sums(hits, w * of_label),
                )
            )

    def _cells(self, columns: Integers, values: Floats) -> Integers:
        """Return the flat index in (K, M) of each column and the bin of its value; all are (n,)."""
        return columns * self.bins + bin_indices(values, self.bins)

    def _sums(self, cells: Integers, values: Numbers, first: Numbers | float = 0.0) -> Numbers:
        """Return the sums (K, M) of cells, with those of the `first` bins (K,) added."""
        sums = group_sums(cells, values, self.count.size).reshape(self.count.shape)
        sums[:, 0] += first
        return sums


def _large_and_first_bins(
    probabilities: Floats, scales: Numbers, edge: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return rows and classes of values above `edge`, and Σw, Σwp and Σwp² of others, (S, 3, K).

    There is no Σw if all weights are 1, (1, n).
    """
    classes = probabilities.shape[1]
    first = np.zeros((len(scales), 3, classes))
    large = [np.zeros(0, np.intp)]
    for rows in row_chunks(probabilities.shape):
        p, w = probabilities[rows], scales[:, rows]
        # Flat: `np.nonzero` of a 2-D array is ten times slower.
        at = np.flatnonzero(p > p.dtype.type(edge))
        large.append(at + rows.start * classes)
        if len(scales) > 1:
            is_first = np.ones(p.shape)
            is_first.ravel()[at] = 0
            first[:, 0] += w @ is_first
        # Products take half of the time of sums over the first axis.
        wide = p.astype(np.float64, order="C")
        wide.ravel()[at] = 0
        first[:, 1] += w @ wide
        first[:, 2] += w @ np.multiply(wide, wide, out=wide)
    row, column = np.divmod(np.concatenate(large), classes)
    return row, column, first
