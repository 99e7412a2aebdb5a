"""Class-wise calibration error over bins of equal counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Numbers
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.calibration_gaps import Gaps, mean_gap
from recalib.metrics.equal_mass import bin_start
from recalib.metrics.predictions import Predictions
from recalib.stats.sums import Moments, moments


class ClasswiseEqualMassError(Metric):
    """Adaptive class-wise ECE: 1/K Σ_k Σ_b n_b/N · |frequency_bk − confidence_bk|; range [0, 1].

    As `classwise_ece`, with each class's probabilities sorted and cut into M bins whose counts
    differ by at most one, as in `numpy.array_split` (N bins if N < M). A cut may split rows with
    tied probabilities: each then counts with the frequency of all tied rows, so the order in a file
    does not matter. Biased upwards, at least by `floor`. The interval is for bins at the quantiles
    of these columns with infinitely many rows, see `interval_of_mean_gap`; it keeps tied rows in
    one bin. It takes K sorts of N rows and is computed on request only.

    Use it where a paper reports it, and rare classes leave bins empty.

    Source: paper 002, section 5.1 and App. A (cwECE with adaptive binning).
    """

    name: ClassVar[str] = "classwise_ece_equal_mass"
    summary: ClassVar[str] = "classwise_ece over bins of equal counts"
    on_request: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        rows, classes = predictions.probabilities.shape
        count = min(self.bins, rows)
        starts = bin_start(np.arange(count), rows, count)
        total = 0.0
        sums = []
        for k in range(classes):
            column = predictions.probabilities[:, k]
            order = np.argsort(column)
            p, occurred = column[order], predictions.labels[order] == k
            total += float(np.abs(np.add.reduceat(_residuals(p, occurred), starts)).sum())
            if level is not None:
                sums.append(_sums_of_bins(p, occurred, starts))
        value = total / (rows * classes)
        if level is None:
            return Estimate(value)
        joined = Moments(*map(np.concatenate, zip(*sums, strict=True)))
        return mean_gap(Gaps.from_moments(joined, joined, classes), level, value)


def _sums_of_bins(p: Floats, occurred: NDArray[np.bool_], starts: NDArray[np.intp]) -> Moments:
    """Return the sums of ascending p (N,) in bins that begin at `starts`, (M,).

    Tied rows are all put into the bin of their middle row: bins that share tied rows would be
    correlated.
    """
    firsts = np.searchsorted(p, p, side="left")
    lasts = np.searchsorted(p, p, side="right")
    where = np.searchsorted(starts, (firsts + lasts) // 2, side="right") - 1
    return moments(where, p, occurred, None, len(starts))


def _residuals(p: Floats, occurred: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return frequency − p for ascending p (N,); tied rows share their mean frequency."""
    firsts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    sizes = np.diff(firsts, append=len(p))
    frequencies = np.add.reduceat(occurred.astype(np.float64), firsts) / sizes
    return np.repeat(frequencies, sizes) - p
