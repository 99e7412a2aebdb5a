"""Accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Better
from recalib.metrics.mean_metrics import RowFraction
from recalib.metrics.predictions import Predictions


class Accuracy(RowFraction):
    """The fraction of rows whose predicted class is the label: mean 1[ŷ = y]; range [0, 1].

    If several classes tie for the largest score, the first is the prediction. Unbiased. The
    interval is Wilson's, which is accurate for few rows and near 0 and 1.

    Use it where the cost of errors is the same for all classes.
    """

    name: ClassVar[str] = "accuracy"
    summary: ClassVar[str] = "fraction of rows whose predicted class is the label"
    better: ClassVar[Better | None] = "higher"
    state_kind: ClassVar[str] = "accuracy"

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.bool_]:
        return predictions.correct
