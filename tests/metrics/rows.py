"""Rows from confidence and correctness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recalib.metrics import METRICS, Estimate, Predictions
from recalib.metrics.calibration_gaps import Gaps
from recalib.stats.sums import Moments

__all__ = ["defined", "gaps_of_tied_rows", "measure", "rows"]


def defined(classes: int, names: Iterable[str] = METRICS) -> list[str]:
    """The metrics among `names` that are defined for K = `classes`."""
    return [name for name in names if METRICS[name].is_defined_for(classes)]


def rows(confidences: ArrayLike, correct: ArrayLike) -> Predictions:
    """Predictions of class 0 of as many classes as leave the others less than the smallest."""
    p = np.asarray(confidences, np.float64)
    classes = 2 if p.min() > 0.5 else int(np.ceil(1 / p.min())) + 2
    rest = np.repeat((1 - p)[:, None] / (classes - 1), classes - 1, axis=1)
    labels = np.where(np.asarray(correct, bool), 0, 1)
    return Predictions.from_probabilities(np.column_stack([p, rest]), labels)


def measure(
    name: str, confidences: ArrayLike, correct: ArrayLike, level: float | None = None
) -> Estimate:
    """The metric of this name, with 15 bins where it has any."""
    return METRICS[name](15).measure(rows(confidences, correct), level)


def gaps_of_tied_rows(counts: Any, confidence: Any, correct: Any, classes: int = 1) -> Gaps:
    """Return the gaps of bins (B,) with n rows, Σp and Σy, of which all rows have one p."""
    n, p, y = (np.asarray(sums, np.float64) for sums in (counts, confidence, correct))
    sums = Moments(n, p, p**2 / np.maximum(n, 1), y, p * y / np.maximum(n, 1))
    return Gaps.from_moments(sums, sums, classes)
