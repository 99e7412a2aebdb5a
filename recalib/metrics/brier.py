"""Brier score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Unit
from recalib.metrics.mean_metrics import RowMean
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import row_chunks


class Brier(RowMean):
    """The mean of Σ_k (p_k − 1[y = k])²; range [0, 2].

    This is Brier's original sum over classes, not a mean: for two classes it is twice the value
    that some libraries report. A proper score. Unbiased; the interval is Student's.

    Use it where two classifiers are compared and a few very wrong rows must not decide.

    Source: paper 004, section 4 (there as a loss).
    """

    name: ClassVar[str] = "brier"
    summary: ClassVar[str] = "mean squared error summed over classes; a proper score"
    unit: ClassVar[Unit] = "score"
    state_kind: ClassVar[str] = "brier"

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.float64]:
        scores = np.empty(len(predictions))
        for rows in row_chunks(predictions.probabilities.shape):
            # In float64, as differences: Σp² − 2p(y) + 1 would cancel for confident rows.
            errors = predictions.probabilities[rows].astype(np.float64)
            errors[np.arange(len(errors)), predictions.labels[rows]] -= 1
            scores[rows] = np.einsum("ij,ij->i", errors, errors)
        return scores
