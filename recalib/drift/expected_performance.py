"""Accuracy, F1 score and AUC that predictions have if they are still calibrated, without labels.

For calibrated probabilities, labels are independent draws from them, so the mean confidence is the
expected accuracy, and expected counts of right and wrong predictions give F1 and AUC. This is the
confidence-based performance estimation (CBPE) of NannyML, with the calibrator's probabilities.

Legend: G groups of predictions with nearly equal probabilities, such as bins or single rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.core.options import check_option
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.target import Target
from recalib.drift.validation import check_confidences
from recalib.errors import InputError
from recalib.metrics.roc_auc import roc_auc_of_bins
from recalib.stats.groups import group_sums

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedValue:
    """An estimate, and the interval in which the value of these predictions lies."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ExpectedPerformance:
    """What predictions achieve if their probabilities are still calibrated; in [0, 1]."""

    #: N.
    predictions: int
    #: Confidence level of the intervals.
    level: float
    accuracy: ExpectedValue
    #: Of class 1, where it is predicted if P(y = 1) > 1/2; None without P(y = 1).
    f1: ExpectedValue | None = None
    #: Area under the ROC curve; None without P(y = 1).
    auc: ExpectedValue | None = None


def expected_performance(
    probabilities: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    target: Target = "top_label",
    level: float = 0.95,
) -> ExpectedPerformance:
    """Return the performance of predictions if they are still calibrated, without labels.

    The intervals are those of labels drawn from the probabilities (delta method). They say nothing
    about predictions that are no longer calibrated.

    Parameters
    ----------
    probabilities: (G,), of the rows or the mean of each group: confidences or, for the target
        `positive_class`, P(y = 1).
    counts: (G,), rows of each group; by default 1. Groups hide differences inside them: AUC is then
        slightly too low, and intervals are slightly too wide.
    level: confidence level of the intervals, inside (0, 1).

    Raises
    ------
    InputError: no rows, a probability outside [0, 1], or a level out of range.

    Examples
    --------
    >>> expected_performance([0.9, 0.7, 0.8]).accuracy.value
    0.8
    """
    check_option("level", level, 0 < level < 1, "0 < level < 1")
    rows = check_confidences(probabilities)
    if counts is not None and (np.shape(counts) != rows.shape or np.min(counts, initial=0) < 0):
        accepted = f"shape {rows.shape}, each at least 0"
        raise InputError("counts", found=f"shape {np.shape(counts)}", accepted=accepted)
    # Equal probabilities are ties.
    p, group = np.unique(rows, return_inverse=True)
    n = group_sums(group, None if counts is None else np.asarray(counts), len(p))
    total = float(n.sum())
    check_option("counts", total, total > 0, "at least one prediction")
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    variances = n * p * (1 - p)

    def interval(value: float, slopes: Values | float) -> ExpectedValue:
        error = quantile * float(np.sqrt(np.sum(variances * np.square(slopes))))
        return ExpectedValue(value, max(value - error, 0.0), min(value + error, 1.0))

    right = p if target == "top_label" else np.maximum(p, 1 - p)
    accuracy = interval(float(n @ right) / total, 1 / total)
    if target == "top_label":
        return ExpectedPerformance(round(total), level, accuracy)
    f1, auc = (None if part is None else interval(*part) for part in (_f1(p, n), _auc(p, n)))
    return ExpectedPerformance(round(total), level, accuracy, f1, auc)


def expected_performance_of_sums(
    sums: CalibrationSums, target: Target
) -> ExpectedPerformance | None:
    """Return the expected performance of all predictions in bins, None without any."""
    known = sums.traffic_confidence_count > 0
    counts = sums.traffic_confidence_count[known]
    if not len(counts):
        return None
    means = np.clip(sums.traffic_confidence[known] / counts, 0, 1)
    return expected_performance(means, counts, target=target)


def _f1(p: Values, n: Values) -> tuple[float, Values] | None:
    """Return 2TP / (predicted + positive) of expected counts, and its derivatives by labels."""
    is_predicted = p > 0.5
    size, hits = float(n @ (is_predicted + p)), float(n @ (is_predicted * p))
    if size == 0:
        return None
    slopes = 2 * (is_predicted.astype(np.float64) - hits / size) / size
    return 2 * hits / size, slopes


def _auc(p: Values, n: Values) -> tuple[float, Values] | None:
    """Return the AUC of expected counts by ascending p, and its derivatives by labels (G,)."""
    ones, zeros = n * p, n * (1 - p)
    positive, negative = float(ones.sum()), float(zeros.sum())
    auc = roc_auc_of_bins(zeros, ones)
    if auc is None:
        return None
    below = (np.cumsum(zeros) - zeros / 2) / negative
    above = 1 - (np.cumsum(ones) - ones / 2) / positive
    return auc, (below - auc) / positive + (auc - above) / negative
