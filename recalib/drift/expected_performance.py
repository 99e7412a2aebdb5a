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

from recalib.core.arrays import Numbers
from recalib.core.options import check_option
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.target import Target
from recalib.drift.validation import check_array, check_confidences
from recalib.metrics.roc_auc import roc_auc_of_bins
from recalib.stats.groups import group_sums


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
    #: Rows of the calibration set whose sampling error is in the intervals; None if it is not.
    calibration_rows: int | None = None


def expected_performance(
    probabilities: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    target: Target = "top_label",
    level: float = 0.95,
    calibration_counts: ArrayLike | None = None,
) -> ExpectedPerformance:
    """Return the performance of predictions if they are still calibrated, without labels.

    The intervals are those of labels drawn from the probabilities (delta method). With
    `calibration_counts` they have the error of the calibrator too: a probability that is fitted to
    n rows of a group has at most the variance q(1 − q)/(n + 4), q = (np + 2)/(n + 4), of a
    frequency among them (Agresti and Coull, 1998). They say nothing about predictions that are no
    longer calibrated.

    Parameters
    ----------
    probabilities: (G,), of the rows or the mean of each group: confidences or, for the target
        `positive_class`, P(y = 1).
    counts: (G,), rows of each group; by default 1. Groups hide differences inside them: AUC is then
        slightly too low, and intervals are slightly too wide.
    level: confidence level of the intervals, inside (0, 1).
    calibration_counts: (G,), rows of each group in the calibration set.

    Raises
    ------
    InputError: no rows, a probability outside [0, 1], or a level out of range.

    Examples
    --------
    >>> from recalib.drift import expected_performance
    >>> round(expected_performance([0.9, 0.7, 0.8]).accuracy.value, 2)
    0.8
    """
    check_option("level", level, 0 < level < 1, "0 < level < 1")
    rows = check_confidences(probabilities)
    # Equal probabilities are ties.
    p, group = np.unique(rows, return_inverse=True)
    n = group_sums(group, _check_counts("counts", counts, rows), len(p))
    total = float(n.sum())
    check_option("counts", total, total > 0, "at least one prediction")
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    variances, fitted = n * p * (1 - p), None
    if calibration_counts is not None:
        fitted = _check_counts("calibration_counts", calibration_counts, rows)
        size = group_sums(group, fitted, len(p)) + 4
        q = ((size - 4) * p + 2) / size
        variances = variances + n**2 * q * (1 - q) / size

    def interval(value: float, slopes: Numbers | float) -> ExpectedValue:
        error = quantile * float(np.sqrt(np.sum(variances * np.square(slopes))))
        return ExpectedValue(value, max(value - error, 0.0), min(value + error, 1.0))

    right = p if target == "top_label" else np.maximum(p, 1 - p)
    accuracy = interval(float(n @ right) / total, 1 / total)
    calibration_rows = None if fitted is None else int(fitted.sum())
    if target == "top_label":
        return ExpectedPerformance(round(total), level, accuracy, calibration_rows=calibration_rows)
    f1, auc = (None if part is None else interval(*part) for part in (_f1(p, n), _auc(p, n)))
    return ExpectedPerformance(round(total), level, accuracy, f1, auc, calibration_rows)


def expected_performance_of_sums(
    sums: CalibrationSums, target: Target, calibration_counts: NDArray[np.int64] | None = None
) -> ExpectedPerformance | None:
    """Return the expected performance of all predictions in bins, None without any.

    Parameters
    ----------
    calibration_counts: (B,), rows of the calibration set in these bins; None if unknown.
    """
    counts = sums.traffic_confidence_count.astype(np.float64)
    if not counts.any():
        return None
    means = np.clip(sums.traffic_confidence / np.maximum(counts, 1), 0, 1)
    fitted = np.zeros_like(counts) if calibration_counts is None else calibration_counts
    groups = np.stack([means, counts, fitted.astype(np.float64)])
    if target == "positive_class":
        groups = _divide(groups, sums.edges)
    means, counts, fitted = groups[:, groups[1] > 0]
    known = None if calibration_counts is None else fitted
    return expected_performance(means, counts, target=target, calibration_counts=known)


def _divide(groups: Numbers, edges: Numbers) -> Numbers:
    """Return means and counts of bins (3, B), the bin around 1/2 in two evenly spread parts."""
    b = int(np.searchsorted(edges, 0.5))
    low, high = np.concatenate([[0.0], edges, [1.0]])[b : b + 2]
    below, above = (low + 0.5) / 2, (high + 0.5) / 2
    share = (groups[0, b] - below) / (above - below)
    if high == 0.5 or not 0 < share < 1:
        return groups
    parts = np.outer(groups[:, b], [1 - share, share])
    parts[0] = below, above
    return np.concatenate([groups[:, :b], parts, groups[:, b + 1 :]], axis=1)


def _check_counts(name: str, counts: ArrayLike | None, rows: Numbers) -> Numbers | None:
    if counts is None:
        return None
    values = np.asarray(counts, np.float64)
    legal = values.shape == rows.shape and np.all(np.isfinite(values) & (values >= 0))
    check_array(name, values, legal, "a value out of range", f"shape {rows.shape}, each at least 0")
    return values


def _f1(p: Numbers, n: Numbers) -> tuple[float, Numbers] | None:
    """Return 2TP / (predicted + positive) of expected counts, and its derivatives by labels."""
    is_predicted = p > 0.5
    size, hits = float(n @ (is_predicted + p)), float(n @ (is_predicted * p))
    if size == 0:
        return None
    slopes = 2 * (is_predicted.astype(np.float64) - hits / size) / size
    return 2 * hits / size, slopes


def _auc(p: Numbers, n: Numbers) -> tuple[float, Numbers] | None:
    """Return the AUC of expected counts by ascending p, and its derivatives by labels (G,)."""
    ones, zeros = n * p, n * (1 - p)
    positive, negative = float(ones.sum()), float(zeros.sum())
    auc = roc_auc_of_bins(zeros, ones)
    if auc is None:
        return None
    below = (np.cumsum(zeros) - zeros / 2) / negative
    above = 1 - (np.cumsum(ones) - ones / 2) / positive
    return auc, (below - auc) / positive + (auc - above) / negative
