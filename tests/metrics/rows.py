"""Rows from confidence and correctness."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from recalib.metrics import METRICS, Estimate, Predictions

__all__ = ["defined", "measure", "rows"]


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
