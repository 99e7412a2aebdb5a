"""Whether columns of scores are likely in another order than the classes of labels.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from recalib.core.arrays import Floats, Integers, log_probabilities
from recalib.core.lazy_import import LazyModule
from recalib.stats.groups import group_counts

optimize = LazyModule("scipy.optimize")

_Input = Literal["logits", "probabilities"]

#: Rows that are enough; a matrix of counts has the square of the classes.
_MAX_ROWS, _MAX_CLASSES, _LEAST_ROWS = 100_000, 1000, 30
#: An area under the ROC curve that is far below 1/2, and its standard errors.
_AREA, _ERRORS = 0.4, 3.5
#: The share of kappa that the present order has at most, and the least kappa of the other one.
_SHARE, _KAPPA = 0.6, 0.2
_MAX_SHOWN = 5


def column_order_doubt(scores: Floats, labels: Integers, input: _Input = "logits") -> str:
    """Return why the columns of scores look permuted, "" if they do not.

    Of two classes the area under the ROC curve is below 0.4 by 3.5 standard errors; a wrong
    threshold does not change it. Of more classes, the order that agrees best with half of the rows
    agrees with the others 3.5 standard errors more often than chance, and far more often than the
    present order; so it is without biases of columns too, because a strong bias moves the rows of
    several classes to one column. Scores without relation to labels, and those of classifiers with
    strong biases, are named in at most 1 of 1,000 data sets: `tests/test_column_order.py`.

    Parameters
    ----------
    scores: checked, (N, K).
    labels: checked, (N,).
    input: whether scores are logits or probabilities.
    """
    step = max(1, len(labels) // _MAX_ROWS)
    scores, labels = scores[::step], labels[::step]
    classes = scores.shape[1]
    if len(labels) < _LEAST_ROWS or classes > _MAX_CLASSES:
        return ""
    return _of_two(scores, labels) if classes == 2 else _of_many(scores, labels, input)


def _of_two(scores: Floats, labels: Integers) -> str:
    with np.errstate(over="ignore"):
        odds = scores[:, 1] - scores[:, 0]
    zeros, ones = np.sort(odds[labels == 0]), odds[labels == 1]
    if not len(zeros) or not len(ones):
        return ""
    ranks = np.searchsorted(zeros, ones) + np.searchsorted(zeros, ones, "right")
    area = float(ranks.mean()) / (2 * len(zeros))
    error = math.sqrt((len(labels) + 1) / (12 * len(zeros) * len(ones)))
    if area >= min(_AREA, 0.5 - _ERRORS * error):
        return ""
    return (
        f"the area under the ROC curve is {area:.3f}, far below 1/2: the two columns, or the "
        "labels 0 and 1, are likely swapped"
    )


def _of_many(scores: Floats, labels: Integers, input: _Input) -> str:
    if (order := _better_order(scores, labels)) is None:
        return ""
    logits = log_probabilities(scores) if input == "probabilities" else scores
    if _better_order(_without_biases(logits), labels) is None:
        return ""
    columns, accuracy, share = order
    moved = [k for k, column in enumerate(columns) if column != k]
    listed = ", ".join(f"class {k} in column {columns[k]}" for k in moved[:_MAX_SHOWN])
    more = ", ..." if len(moved) > _MAX_SHOWN else ""
    return (
        f"accuracy is {accuracy:.1%}, and {share:.1%} with columns in another order "
        f"({listed}{more}): columns and labels likely have different orders of the classes"
    )


def _without_biases(logits: Floats) -> Floats:
    """Return logits (N, K) that constants of columns or rows do not change: columns of mean 0.

    −inf stays, and has no part in the mean.
    """
    below = logits - logits.max(axis=1, keepdims=True)
    finite = np.isfinite(below)
    sums = np.where(finite, below, 0).sum(axis=0, dtype=np.float64)
    return below - sums / np.maximum(finite.sum(axis=0), 1)


def _better_order(scores: Floats, labels: Integers) -> tuple[list[int], float, float] | None:
    """Return the column of each class in another order, the accuracy, and that of the order."""
    classes = scores.shape[1]
    cells = labels * classes + scores.argmax(axis=1)
    first = group_counts(cells[::2], classes**2).reshape(classes, classes)
    second = group_counts(cells[1::2], classes**2).reshape(classes, classes)
    # At most as many rows are right in another order.
    if np.trace(first) >= _SHARE * first.max(axis=1).sum():
        return None
    _, columns = optimize.linear_sum_assignment(-first)
    right = second[np.arange(classes), columns].sum() - 0.5  # a count of whole rows
    n = second.sum()
    share, accuracy = right / n, np.trace(second) / n
    by_class, by_column = second.sum(axis=1) / n, second.sum(axis=0) / n
    chance, own_chance = by_class @ by_column[columns], by_class @ by_column
    kappa = (share - chance) / max(1 - chance, 1e-9)
    own = (accuracy - own_chance) / max(1 - own_chance, 1e-9)
    is_chance = share - chance < _ERRORS * math.sqrt(chance * (1 - chance) / n)
    if is_chance or kappa < _KAPPA or own > _SHARE * kappa:
        return None
    return columns.tolist(), accuracy, share
