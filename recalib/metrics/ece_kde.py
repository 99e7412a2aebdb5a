"""Calibration error by kernels, without bins: top-label, class-wise and canonical."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.kernels import best_bandwidth, kernel_means
from recalib.metrics.predictions import Predictions

__all__ = ["CanonicalKernelError", "ClasswiseKernelError", "KernelError"]


class KernelError(Metric):
    """ECE by kernels: mean_j |accuracy near c_j − c_j|; range [0, 1].

    Top-label. The accuracy near a confidence c_j is that of all other rows, weighted by a Beta
    kernel; its bandwidth is the one of `kernels.BANDWIDTHS` under which confidences are likeliest.
    Equal confidences have equal kernels, so that ties need no rule. Biased upwards, since what an
    estimate of accuracy is off by counts whatever its sign; consistent. A row alone is its own
    accuracy. Work grows with N², seconds for 10,000 rows, and it is measured when asked for by
    name. No interval in this version.

    Source: Popordanoska, Sayer and Blaschko, A consistent and differentiable Lp canonical
    calibration error estimator, NeurIPS 2022, p = 1; paper 002, section 2.
    """

    name: ClassVar[str] = "ece_kde"
    summary: ClassVar[str] = "expected calibration error by kernels instead of bins"
    on_request: ClassVar[bool] = True

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return Estimate(_binary_error(predictions.confidences, predictions.correct))


class ClasswiseKernelError(Metric):
    """Class-wise ECE by kernels: the mean over classes of each column's; range [0, 1].

    For each class, its column of probabilities against how often it occurred, as `ece_kde` has it,
    with a bandwidth of its own; all K columns count alike. Work grows with K·N². Ties, bias,
    interval and source as in `ece_kde`.
    """

    name: ClassVar[str] = "ece_kde_classwise"
    summary: ClassVar[str] = "mean over classes of each column's calibration error by kernels"
    on_request: ClassVar[bool] = True

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        columns = enumerate(predictions.probabilities.T)
        errors = [_binary_error(p, predictions.labels == k) for k, p in columns]
        return Estimate(float(np.mean(errors)))


class CanonicalKernelError(Metric):
    """Canonical calibration error by kernels: mean_j Σ_k |frequency of k near p_j − p_jk|.

    All of a row of probabilities at once, by Dirichlet kernels: range [0, 2], as far as two
    distributions can be apart. With many classes hardly any rows are near each other, and it is
    large for any model. Work grows with K·N². Ties, bias, interval and source as in `ece_kde`.
    """

    name: ClassVar[str] = "ece_kde_canonical"
    summary: ClassVar[str] = "distance of all probabilities from frequencies nearby, by kernels"
    on_request: ClassVar[bool] = True

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        p = predictions.probabilities.astype(np.float64)
        outcomes = np.zeros_like(p)
        outcomes[np.arange(len(p)), predictions.labels] = 1
        gaps = np.abs(kernel_means(p, outcomes, best_bandwidth(p)) - p)
        return Estimate(float(gaps.sum(axis=1).mean()))


def _binary_error(probabilities: Floats, occurred: NDArray[np.bool_]) -> float:
    """Return mean |frequency near p_j − p_j| of one event's probabilities (N,)."""
    p = probabilities.astype(np.float64)
    pairs = np.stack([p, 1 - p], axis=1)
    means = kernel_means(pairs, occurred[:, None].astype(np.float64), best_bandwidth(pairs))
    return float(np.mean(np.abs(means[:, 0] - p)))
