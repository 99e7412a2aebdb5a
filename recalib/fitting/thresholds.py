"""Thresholds on P(y = 1) of two classes, with recall and precision.

A classifier that is used at a threshold predicts other rows at that number after a calibration. The
new threshold that equals the old ½ is the calibrated probability at log-odds 0.

Legend: N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Numbers
from recalib.core.card import OperatingPoint, Thresholds


def equal_threshold(calibrator: Calibrator) -> float:
    """Return the threshold on the calibrated P(y = 1) that equals ½ before the calibration.

    A map that never changes predictions has ½. Of a map with ties, all rows of the tie with
    log-odds 0 are below the new threshold.
    """
    if calibrator.map.preserves_accuracy:
        return 0.5
    return float(calibrator.predict_float64(np.zeros((1, 2)))[0, 1])


def positive_counts(
    calibrator: Calibrator,
    probabilities: NDArray[np.floating[Any]],
    labels: NDArray[np.integer[Any]],
    weights: ArrayLike | None,
) -> Numbers:
    """Return Σ w of true positives, of predicted positives and of positives, (2, 3).

    The first row is of the threshold ½, the second of `equal_threshold`. A row is predicted
    positive above the threshold.

    Parameters
    ----------
    probabilities: (N,), calibrated P(y = 1).
    labels: (N,), 0 or 1.
    weights: (N,); None for equal weights.
    """
    w = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    hits = w * (labels == 1)
    counts = []
    for threshold in (0.5, equal_threshold(calibrator)):
        positive = probabilities > threshold
        counts.append((hits[positive].sum(), w[positive].sum(), hits.sum()))
    return np.array(counts)


def measure_thresholds(
    calibrator: Calibrator,
    probabilities: NDArray[np.floating[Any]],
    labels: NDArray[np.integer[Any]],
    weights: ArrayLike | None = None,
) -> Thresholds:
    """Return the thresholds with recall and precision; parameters as of `positive_counts`."""
    return thresholds_of(calibrator, positive_counts(calibrator, probabilities, labels, weights))


def thresholds_of(calibrator: Calibrator, counts: Numbers) -> Thresholds:
    """Return the thresholds from `positive_counts` of all rows."""
    points = (
        OperatingPoint(threshold, _ratio(true, positives), _ratio(true, predicted))
        for threshold, (true, predicted, positives) in zip(
            (0.5, equal_threshold(calibrator)), counts.tolist(), strict=True
        )
    )
    return Thresholds(*points)


def _ratio(part: float, total: float) -> float | None:
    return part / total if total > 0 else None


def describe_thresholds(calibrator: Calibrator) -> str:
    """Return a sentence on both thresholds of two classes, or "".

    It says "about" for a map that may not keep the order by P(y = 1): with ties, such as those of
    `histogram_binning`, no threshold equals the old one.
    """
    thresholds = calibrator.card.thresholds
    if thresholds is None:
        return ""
    half, equal = thresholds.half, thresholds.equal
    of_half, of_equal = (_describe(point) for point in (half, equal))
    if equal.threshold == half.threshold:
        return f"P(y = 1) above 0.5 predicts what it did before: {of_half}"
    about = "" if calibrator.map.preserves_order else "about "
    return (
        f"P(y = 1) above {equal.threshold:.4g} predicts {about}what 0.5 predicted before: "
        f"{of_equal}; above 0.5: {of_half}"
    )


def _describe(point: OperatingPoint) -> str:
    named = {"recall": point.recall, "precision": point.precision}
    texts = (f"{name} {value:.3g}" for name, value in named.items() if value is not None)
    return ", ".join(texts) or "no positive row"
