"""Calibration error of each row against the accuracy of its bin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Estimate, Metric
from recalib.metrics.binning import bin_of
from recalib.metrics.predictions import Predictions

__all__ = ["LabelBinnedError"]


class LabelBinnedError(Metric):
    """Label-binned calibration error: 1/N Σ_i |accuracy of i's bin − confidence_i|; range [0, 1].

    Top-label, over M equal-width right-closed bins, of order p = 1. At least as large as `ece`,
    which averages confidences of a bin too, so that they may cancel: even of a calibrated
    classifier with infinitely many rows it is about a quarter of a bin's width. Ties need no rule,
    since equal confidences share a bin. Biased upwards. No interval. No state: how a row counts
    depends on an accuracy that is known last.

    Source: paper 000, eq. 7 with p = 1; Roelofs et al., 2020.
    """

    name: ClassVar[str] = "ece_label_binned"
    summary: ClassVar[str] = "mean distance of confidences from the accuracy of their bin"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        where = bin_of(predictions.confidences, self.bins)
        counts = np.bincount(where, minlength=self.bins)
        accuracy = np.bincount(where, predictions.correct, self.bins) / np.maximum(counts, 1)
        return Estimate(float(np.mean(np.abs(accuracy[where] - predictions.confidences))))
