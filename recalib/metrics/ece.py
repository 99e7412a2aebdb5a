"""Calibration errors over equal-width bins: of confidence, of P(y = 1), of each class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.core.arrays import Numbers
from recalib.errors import InputError
from recalib.metrics.binned import BinMetric, ClassMetric
from recalib.metrics.calibration_gaps import largest_gap, root_mean_squared_gap
from recalib.metrics.predictions import Predictions
from recalib.metrics.top5_accuracy import TOP, is_among_largest
from recalib.stats.groups import row_chunks
from recalib.stats.sums import Bins


class ExpectedCalibrationError(BinMetric):
    """Expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    Top-label, over M equal-width right-closed bins. Ties share a bin. Biased upwards: a perfectly
    calibrated classifier has a positive ECE, larger with fewer rows; `floor` shows how large. The
    interval is for the ECE of these bins with infinitely many rows, see `interval_of_mean_gap`.

    Use it where a paper reports it, or one number must say how far confidence is from accuracy.

    Source: papers 000 eq. 3, 003 eq. 1 and 004 eq. 2 (M = 15).
    """

    name: ClassVar[str] = "ece"
    summary: ClassVar[str] = "expected calibration error, equal-width bins"


class L2CalibrationError(BinMetric):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Bins and ties as in ECE. It is at least as large as ECE, and large gaps dominate it. Biased
    upwards, see `floor`; `ece_debiased` estimates the same without this bias. The interval is for
    these bins with infinitely many rows, see `interval_of_mean_squared_gap`.

    Use it where large gaps matter more than small ones.

    Source: paper 000, eq. 6 with p = 2.
    """

    name: ClassVar[str] = "ece_l2"
    summary: ClassVar[str] = "root mean squared gap, equal-width bins"
    error = staticmethod(root_mean_squared_gap)


class MaximumCalibrationError(BinMetric):
    """Maximum calibration error: max_b |accuracy_b − confidence_b| over filled bins; range [0, 1].

    Bins and ties as in ECE. Strongly biased upwards: a single row in a bin can determine it. The
    interval is for the largest gap of these non-empty bins with infinitely many rows; it is wide
    if a bin holds few rows, see `interval_of_largest_gap`.

    Use it where the worst confidence matters, and each bin has many rows.

    Source: paper 004, eq. 3.
    """

    name: ClassVar[str] = "mce"
    summary: ClassVar[str] = "largest gap of any equal-width bin"
    error = staticmethod(largest_gap)


class BinaryCalibrationError(BinMetric):
    """Binary ECE: Σ_b n_b/N · |frequency_b − p̄_b| of class 1, for K = 2; range [0, 1].

    p is P(y = 1), in M equal-width right-closed bins of [0, 1]; frequency is the share of class 1.
    `ece` looks at the larger of the two probabilities, so that errors of rows that predict class 0
    and class 1 may cancel: with a wrong base rate it can be near 0. Ties share a bin. Biased
    upwards, see `floor`; interval and floor are those of `ece` with these bins.

    Use it where P(y = 1) is read as a frequency, also far from ½.

    Source: Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian
    binning, AAAI 2015, whose ECE is of the probability of the positive class.
    """

    name: ClassVar[str] = "binary_ece"
    summary: ClassVar[str] = "expected calibration error of P(y = 1), equal-width bins; two classes"
    state_kind: ClassVar[str] = "positive_bins"

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        return classes == 2

    def add(self, state: Bins, predictions: Predictions, weights: Numbers | None = None) -> None:
        super().add(state, predictions.of_class(1), weights)


class TopKError(BinMetric):
    """Top-k ECE: Σ_b n_b/N · |hits_b − confidence_b| of the k likeliest classes; range [0, 1].

    A row's confidence is the sum of its k largest probabilities, and a hit is a label among these
    classes, ties as in `top5_accuracy`. Over M equal-width right-closed bins; bias, interval and
    floor are those of `ece` with these bins. It equals `ece` for k = 1, and is 0 from k = K on,
    where sums are 1.

    Use it where the k likeliest classes are shown together with their total probability.

    Parameters
    ----------
    bins: M.
    k: the number of classes, 5 in `METRICS`, which has it for K > 5.

    Raises
    ------
    InputError: a `k` that is no integer from 1.

    Source: Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu and Hartley, Calibration of neural
    networks using splines, ICLR 2021, whose within-top-r predictions these are; bins of paper 000.

    Examples
    --------
    >>> from recalib.metrics import Predictions
    >>> from recalib.metrics.ece import TopKError
    >>> rows = Predictions.from_logits(logits, labels)
    >>> round(TopKError(k=2).measure(rows).value, 2)
    0.06
    """

    name: ClassVar[str] = "top5_ece"
    summary: ClassVar[str] = "expected calibration error of the sum of the five likeliest classes"
    on_request: ClassVar[bool] = True
    state_kind: ClassVar[str] = "top5_bins"

    def __init__(self, bins: int = 15, k: int = TOP) -> None:
        super().__init__(bins)
        if not isinstance(k, int | np.integer) or k < 1:
            raise InputError("k", found=repr(k), accepted="an integer from 1")
        self.k = k

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        return classes > TOP

    def add(self, state: Bins, predictions: Predictions, weights: Numbers | None = None) -> None:
        p_nk, k = predictions.probabilities, min(self.k, predictions.classes)
        sums = np.empty(len(p_nk), p_nk.dtype)
        for rows in row_chunks(p_nk.shape):
            sums[rows] = np.partition(p_nk[rows], -k, axis=1)[:, -k:].sum(axis=1)
        # Sums may be above 1 by rounding.
        state.add(np.minimum(sums, 1), is_among_largest(predictions, k), weights)


class ClasswiseError(ClassMetric):
    """Class-wise ECE: 1/K Σ_k Σ_b n_bk/N · |frequency_bk − confidence_bk|; range [0, 1].

    For each class, its probabilities against its frequency, over M equal-width right-closed bins.
    All K classes have equal weight. Ties share a bin. With many classes the value is small because
    most probabilities are small. Biased upwards, see `floor`. The interval is for these bins with
    infinitely many rows, see `interval_of_mean_gap`.

    Use it where a paper reports it; read it beside its floor.

    Source: paper 002, definition 3.7 with ρ = 1, and App. A.1.
    """

    name: ClassVar[str] = "classwise_ece"
    summary: ClassVar[str] = "mean over classes of each column's calibration error"


class MarginalError(ClassMetric):
    """ℓ2 marginal error: √(1/K Σ_k Σ_b n_bk/N · (frequency_bk − confidence_bk)²); range [0, 1].

    The root of the mean squared class-wise gap; all classes have equal weight. Bins, ties and bias
    as in `classwise_ece`, which is never larger. Bins have equal width; the paper's table has bins
    of equal counts, which need a sort of every column. The interval is that of
    `interval_of_mean_squared_gap`.

    Use it where a paper reports it; frequent and rare classes count by their rows.

    Source: Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, definition 2.4,
    where class weights are free; paper 000, App. J, which gives no formula.
    """

    name: ClassVar[str] = "marginal_ece_l2"
    summary: ClassVar[str] = "root mean squared gap over all classes and their bins"
    error = staticmethod(root_mean_squared_gap)
