"""Validate arrays of independent labels (multilabel).

Shapes: N rows, K labels, at least two. A label has the log-odds z or the probability p = σ(z), and
a row may have any number of labels. Errors are as in `recalib.core.arrays`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import (
    SMALLEST_PROBABILITY,
    Floats,
    check_finite,
    check_matrix,
    refuse_first,
)
from recalib.errors import InputError


def check_label_scores(
    values: ArrayLike,
    *,
    input: str,
    classes: int | None = None,
    field: str | None = None,
    first_row: int = 0,
) -> Floats:
    """Return finite log-odds or probabilities (N, K) of labels; float dtypes are kept.

    Parameters
    ----------
    input: `logits` for log-odds, or `probabilities`.
    classes: the expected K, if known.
    field: the name of the array in errors, by default `input`.
    first_row: the number of the first row in errors.

    Raises
    ------
    InputError: as `check_logits`; also −inf, or a probability outside [0, 1].
    """
    name = field or input
    scores = check_finite(check_matrix(values, classes, name), field=name, first_row=first_row)
    if input == "probabilities":
        invalid, accepted = ~((scores >= 0) & (scores <= 1)), "probabilities between 0 and 1"
    else:
        invalid, accepted = np.isinf(scores), "finite log-odds: labels are independent, not masked"
    refuse_first(invalid, scores, name, accepted, first_row)
    return scores


def check_label_matrix(
    values: ArrayLike, *, shape: tuple[int, int], field: str = "labels", first_row: int = 0
) -> NDArray[np.bool_]:
    """Return labels as booleans (N, K): true where the row has the label.

    Raises
    ------
    InputError: another shape than `shape`, or values other than 0 and 1.
    """
    labels = np.asarray(values)
    if labels.dtype == object or labels.dtype.kind not in "biuf":
        raise InputError(field, found=f"dtype {labels.dtype}", accepted="zeros and ones")
    if labels.shape != shape:
        raise InputError(
            field,
            found=f"shape {labels.shape}",
            accepted=f"shape {shape}, one column for each label",
        )
    other = (labels != 0) & (labels != 1)  # also NaN
    refuse_first(other, labels, field, "0 or 1", first_row)
    return labels.astype(bool)


def label_resemblance(log_odds: Floats) -> str:
    """Return why checked log-odds look like probabilities, "" if they do not."""
    alike = log_odds.min() >= 0 and log_odds.max() <= 1 and (log_odds % 1).any()
    return "all are between 0 and 1" if alike else ""


def label_log_odds(probabilities: Floats) -> Floats:
    """Return log p − log (1 − p) of valid probabilities, for use as logits.

    p is clipped at 1e-38 below, and at half a rounding error from 1, as far as its dtype can tell.
    """
    p = probabilities.astype(np.promote_types(probabilities.dtype, np.float32), copy=False)
    rounding = np.finfo(probabilities.dtype).epsneg / 2
    log_p = np.log(np.maximum(p, p.dtype.type(SMALLEST_PROBABILITY)))
    return log_p - np.log(np.maximum(1 - p, p.dtype.type(rounding)))
