"""Rows in the order of their confidence, whatever their order in the file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.predictions import Predictions

__all__ = ["sort_by_confidence"]


def sort_by_confidence(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return confidences, ascending, and how right each row is: both (N,).

    Where confidences tie, each row counts with the accuracy of all rows of that confidence: the
    expectation over the orders that they could have.
    """
    order = np.argsort(predictions.confidences, kind="stable")
    p = predictions.confidences[order]
    starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    sizes = np.diff([*starts, len(p)])
    rights = np.add.reduceat(predictions.correct[order].astype(np.float64), starts)
    return p.astype(np.float64), np.repeat(rights / sizes, sizes)
