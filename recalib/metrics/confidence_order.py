"""Rows sorted by confidence, independent of their order in the file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.predictions import Predictions

__all__ = ["sort_by_confidence"]


def sort_by_confidence(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ascending confidences and the accuracy of each row, both (N,).

    Rows with tied confidences all have their mean accuracy, the expectation over their possible
    orders.
    """
    order = np.argsort(predictions.confidences, kind="stable")
    p = predictions.confidences[order]
    starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    sizes = np.diff([*starts, len(p)])
    hits = np.add.reduceat(predictions.correct[order].astype(np.float64), starts)
    return p.astype(np.float64), np.repeat(hits / sizes, sizes)
