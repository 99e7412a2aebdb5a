"""Class-wise calibration error over soft bins."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions
from recalib.ops.formulas import soft_binned_power
from recalib.ops.numpy_ops import NumpyOps


class SoftBinnedMarginalError(Metric):
    """Soft-binned marginal error: √(1/K Σ_k Σ_j S_jk/N · (A_jk − C_jk)²); range [0, 1].

    For each class, its probabilities against its frequency, as in `marginal_ece_l2`, which it is
    for T → 0. A probability belongs to all M bins, to bin j with membership u_j
    (`recalib.ops.formulas.soft_bins`): S_jk = Σ_i u_j(p_ik), and A_jk and C_jk are the frequency
    and the mean probability of class k with these weights. It has no jumps at edges of bins. All
    classes have equal weight. Ties have equal memberships. Biased upwards, as `marginal_ece_l2`;
    it has neither interval nor floor. Time grows with K·M·N.

    Use it where a small change of the probabilities must be a small change of the error.

    Parameters
    ----------
    bins: M.
    temperature: T > 0 of the bins; .003 in `METRICS`, as in `objectives.sb_ece`.

    Source: paper 000, appendix J, which names it "a trainable soft version of marginal ECE" without
    a formula: eq. 11 with p = 2 for each class, averaged as in `marginal_ece_l2`.

    Examples
    --------
    >>> from recalib.metrics import Predictions
    >>> from recalib.metrics.marginal_sb_ece import SoftBinnedMarginalError
    >>> rows = Predictions.from_logits(logits, labels)
    >>> round(SoftBinnedMarginalError(temperature=0.01).measure(rows).value, 2)
    0.13
    """

    name: ClassVar[str] = "marginal_sb_ece"
    summary: ClassVar[str] = "root mean squared gap over all classes and their soft bins"
    on_request: ClassVar[bool] = True

    def __init__(self, bins: int = 15, temperature: float = 0.003) -> None:
        super().__init__(bins)
        self.temperature = temperature

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        ones = np.ones(len(predictions)) if weights is None else weights / weights.mean()
        powers = [
            soft_binned_power(
                NumpyOps(), column.astype(np.float64), (predictions.labels == k).astype(np.float64),
                ones, self.bins, self.temperature, 2.0, "binned",
            )
            for k, column in enumerate(predictions.probabilities.T)
        ]  # fmt: skip
        return Estimate(float(np.sqrt(np.mean(powers))))
