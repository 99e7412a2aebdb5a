"""Calibration errors by kernel density estimation: top-label, class-wise and canonical."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.core.arrays import Integers, Numbers
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.kernel_noise import KernelEstimates, kernel_error
from recalib.metrics.kernels import best_bandwidth, smooth
from recalib.metrics.predictions import Predictions


class _KernelMetric(Metric):
    on_request: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False


class KernelError(_KernelMetric):
    """ECE by kernels: mean_j |accuracy near c_j − c_j|; range [0, 1].

    Top-label. The accuracy near a confidence c_j is the accuracy of all other rows, weighted by a
    Beta kernel. The bandwidth is the one of `kernels.BANDWIDTHS` with the largest likelihood of the
    confidences. Ties have equal kernels. Biased upwards, since estimation errors of the accuracy
    count with either sign; consistent. For N = 1 the accuracy is that of the row. Time grows with
    N², seconds for 10,000 rows, so it is computed on request only. The interval is for the error
    of kernels with this bandwidth on infinitely many rows; with a broad kernel this is slightly
    above 0 even for a calibrated model. See `kernel_error` for the interval, `floor` and
    their cost.

    Use it where a paper with kernels reports it.

    Source: Popordanoska, Sayer and Blaschko, A consistent and differentiable Lp canonical
    calibration error estimator, NeurIPS 2022, p = 1; paper 002, section 2.
    """

    name: ClassVar[str] = "ece_kde"
    summary: ClassVar[str] = "expected calibration error by kernels instead of bins"

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        p = predictions.confidences.astype(np.float64)
        labels = predictions.correct.astype(np.int64)
        pairs = np.stack([1 - p, p], axis=1)
        return kernel_error([_of_event(p, labels, 1)], labels, pairs, level)


class ClasswiseKernelError(_KernelMetric):
    """Class-wise ECE by kernels: the mean over classes of each column's; range [0, 1].

    For each class, its probabilities against its frequency, as in `ece_kde`, with a separate
    bandwidth. All K classes have equal weight. Time grows with K·N². Ties, bias, interval and
    source as in `ece_kde`.

    Use it where a paper with kernels reports it for all classes.
    """

    name: ClassVar[str] = "ece_kde_classwise"
    summary: ClassVar[str] = "mean over classes of each column's calibration error by kernels"

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        p, labels = predictions.probabilities.astype(np.float64), predictions.labels
        parts = [_of_event(column, labels, k) for k, column in enumerate(p.T)]
        return kernel_error(parts, labels, p, level, mean=True)


class CanonicalKernelError(_KernelMetric):
    """Canonical calibration error by kernels: mean_j Σ_k |frequency of k near p_j − p_jk|.

    It compares whole rows of probabilities by Dirichlet kernels; range [0, 2], the largest ℓ1
    distance of two distributions. With many classes few rows are near each other, and the value is
    large for any model. Time grows with K·N². Ties, bias, interval and source as in `ece_kde`.

    Use it where all probabilities of a row together must be frequencies, of few classes.
    """

    name: ClassVar[str] = "ece_kde_canonical"
    summary: ClassVar[str] = "distance of all probabilities from frequencies nearby, by kernels"

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        p = predictions.probabilities.astype(np.float64)
        outcomes = np.zeros_like(p)
        outcomes[np.arange(len(p)), predictions.labels] = 1
        bandwidth = best_bandwidth(p)
        classes = np.arange(predictions.classes)
        part = KernelEstimates(p, bandwidth, classes, p, *smooth(p, outcomes, bandwidth))
        return kernel_error([part], predictions.labels, p, level)


def _of_event(p: Numbers, labels: Integers, event: int) -> KernelEstimates:
    """Return the smoothed frequency of the class `event` near each of its probabilities (N,)."""
    pairs = np.stack([p, 1 - p], axis=1)
    bandwidth = best_bandwidth(pairs)
    occurred = (labels == event)[:, None].astype(np.float64)
    means, weight = smooth(pairs, occurred, bandwidth)
    return KernelEstimates(pairs, bandwidth, np.array([event]), p[:, None], means, weight)
