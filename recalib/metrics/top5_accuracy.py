"""Top-5 accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Better
from recalib.metrics.mean_metrics import RowFraction
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import row_chunks

_TOP = 5


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
        return classes > _TOP

    @staticmethod
    def scores(predictions: Predictions) -> NDArray[np.bool_]:
        # Whether fewer than 5 classes come before the label.
        in_top_5 = np.empty(len(predictions), np.bool_)
        for rows in row_chunks(predictions.scores.shape):
            scores, labels = predictions.scores[rows], predictions.labels[rows]
            label_scores = scores[np.arange(len(scores)), labels][:, None]
            # For most rows the scores above the label's, or at least as large, are enough.
            in_top_5[rows] = _counts(scores > label_scores) < _TOP
            ranked = np.flatnonzero(in_top_5[rows])
            scores, labels, label_scores = scores[ranked], labels[ranked], label_scores[ranked]
            tied = _counts(scores >= label_scores) > _TOP
            scores, labels, label_scores = scores[tied], labels[tied], label_scores[tied]
            before = scores > label_scores
            before |= (scores == label_scores) & (np.arange(predictions.classes) < labels[:, None])
            in_top_5[rows][ranked[tied]] = _counts(before) < _TOP
        return in_top_5


def _counts(is_before: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return the number of true values in each row; four times as fast as `count_nonzero`."""
    counts: NDArray[np.uint32] = is_before.view(np.uint8).sum(axis=1, dtype=np.uint32)
    return counts
