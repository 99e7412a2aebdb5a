"""Rows sorted by confidence, independent of their order in the file, and bins of equal counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.predictions import Predictions

Indices = NDArray[np.int64]


def bin_start(index: Indices, rows: int, bins: Indices | int) -> Indices:
    """Return the first row of bin `index` of M bins of equal counts; N for `index` = M.

    If M does not divide N, the first N mod M bins have one row more, as in `numpy.array_split`.
    """
    return index * (rows // bins) + np.minimum(index, rows % bins)


def bin_of_row(row: Indices, rows: int, bins: Indices | int) -> Indices:
    """Return the bin of `bin_start` that has a row, 0 to N − 1."""
    size, longer = rows // bins, rows % bins
    in_longer = longer * (size + 1)
    return np.where(row < in_longer, row // (size + 1), longer + (row - in_longer) // size)


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
