"""Top-5 accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Better
from recalib.metrics.mean_metrics import RowFraction
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import row_chunks

#: Of the metrics of the likeliest classes.
TOP = 5


class Top5Accuracy(RowFraction):
    """The fraction of rows whose label is among the 5 largest scores; range [0, 1].

    For K > 5. Ties for the fifth place go to the first classes. Logits are ranked
    directly, since their probabilities may underflow and tie. Unbiased; the interval is Wilson's.

    Use it where several answers are shown, and one of them must be right.

    Source: paper 004, table 8.
    """

    name: ClassVar[str] = "top5_accuracy"
    summary: ClassVar[str] = "fraction of rows whose label is among the five likeliest classes"
    better: ClassVar[Better | None] = "higher"
    state_kind: ClassVar[str] = "top5_accuracy"

    @classmethod
    def is_defined_for(cls, classes: int) -> bool:
        return classes > TOP

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.bool_]:
        return is_among_largest(predictions, TOP)


def is_among_largest(predictions: Predictions, k: int) -> NDArray[np.bool_]:
    """Return whether fewer than k classes come before the label of each row, (N,)."""
    result = np.empty(len(predictions), np.bool_)
    for rows in row_chunks(predictions.scores.shape):
        scores, labels = predictions.scores[rows], predictions.labels[rows]
        label_scores = scores[np.arange(len(scores)), labels][:, None]
        # For most rows the scores above the label's, or at least as large, are enough.
        result[rows] = _counts(scores > label_scores) < k
        ranked = np.flatnonzero(result[rows])
        scores, labels, label_scores = scores[ranked], labels[ranked], label_scores[ranked]
        tied = _counts(scores >= label_scores) > k
        scores, labels, label_scores = scores[tied], labels[tied], label_scores[tied]
        before = scores > label_scores
        before |= (scores == label_scores) & (np.arange(predictions.classes) < labels[:, None])
        result[rows][ranked[tied]] = _counts(before) < k
    return result


def _counts(is_before: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return the number of true values in each row; four times as fast as `count_nonzero`."""
    return is_before.view(np.uint8).sum(axis=1, dtype=np.uint32)
