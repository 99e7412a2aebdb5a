"""Checks at the boundary: what comes from outside becomes arrays that everything else may trust.

Shapes: N rows (samples), K classes. Logits are (N, K), real, float16/32/64, where −inf marks a
class that is masked for that row. Labels are (N,), integers in [0, K). Every check raises
`InputError` naming the field, what was found and what is accepted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.errors import InputError

__all__ = [
    "SMALLEST_PROBABILITY",
    "Floats",
    "Integers",
    "check_labels",
    "check_logits",
    "check_probabilities",
    "check_weights",
    "log_probabilities",
]

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]

#: Numbers up to which plain Python is faster than NumPy, whose calls take microseconds each.
_FEW = 64
_FLOATS = (np.float16, np.float32, np.float64)
#: How far a row of probabilities may be from summing to one: float16 rounds 1,000 classes to
#: about 1e-3, and anything beyond that is not a rounding error.
_SUM_TOLERANCE = 1e-2
#: The smallest probability that a logarithm is taken of: the float32 softmax of a confident
#: network underflows to 0, which says "under 1e-38", not "impossible".
SMALLEST_PROBABILITY = 1e-38


def check_logits(
    values: ArrayLike, *, classes: int | None = None, field: str = "logits", first_row: int = 0
) -> Floats:
    """Return `values` as an (N, K) array of floats, its own float dtype kept.

    Integers become float64; −inf (a masked class) is legal while the row keeps one finite logit.

    Parameters
    ----------
    classes: the K expected, where the caller knows it.
    field: how to call the array in an error.
    first_row: added to row numbers in errors, for callers that check a file chunk by chunk.

    Raises
    ------
    InputError: wrong rank or dtype, empty, fewer than two classes, another K than `classes`,
        NaN, +inf, or a row whose classes are all masked.
    """
    logits = _matrix(values, classes, field)
    if _all_finite(logits):  # as is usual
        return logits
    bad = np.isnan(logits) | np.isposinf(logits)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{field}[{first_row + row}][{column}]",
            found="NaN" if np.isnan(logits[row, column]) else "+inf",
            accepted="finite numbers, and -inf for a masked class",
        )
    masked = np.isneginf(logits).all(axis=1)
    if masked.any():
        raise InputError(
            f"{field}[{first_row + int(np.argmax(masked))}]",
            found="every class masked (-inf)",
            accepted="at least one finite logit in each row",
        )
    return logits


def check_probabilities(
    values: ArrayLike,
    *,
    classes: int | None = None,
    field: str = "probabilities",
    first_row: int = 0,
) -> Floats:
    """Return `values` as an (N, K) array of probabilities, its own float dtype kept.

    Raises
    ------
    InputError: as `check_logits`; besides, a value outside [0, 1], or a row whose sum differs
        from one by more than 0.01 (logits taken for probabilities end here).
    """
    probabilities = _matrix(values, classes, field)
    bad = ~((probabilities >= 0) & (probabilities <= 1))
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{field}[{first_row + row}][{column}]",
            found=f"{probabilities[row, column]:g}",
            accepted="probabilities between 0 and 1 (are these logits?)",
        )
    sums: NDArray[np.float64] = np.sum(probabilities, axis=1, dtype=np.float64)
    off = np.abs(sums - 1) > _SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"{field}[{first_row + row}]",
            found=f"a sum of {sums[row]:.6g}",
            accepted="rows that sum to 1",
        )
    return probabilities


def log_probabilities(probabilities: Floats) -> Floats:
    """Return the logits that stand for checked probabilities: their clipped logarithm.

    float16 is widened to float32, whose range the clip at 1e-38 needs.
    """
    wide = probabilities.astype(np.promote_types(probabilities.dtype, np.float32), copy=False)
    clipped: Floats = np.log(np.maximum(wide, wide.dtype.type(SMALLEST_PROBABILITY)))
    return clipped


def check_labels(
    values: ArrayLike, *, logits: Floats, field: str = "labels", first_row: int = 0
) -> Integers:
    """Return `values` as (N,) int64 labels of the rows of `logits` (N, K), already checked.

    Floats with integral values are accepted, since CSV and some exports carry no integers.

    Raises
    ------
    InputError: wrong rank, dtype or length, fractional, outside [0, K), or on a masked class.
    """
    labels = np.asarray(values)
    rows, classes = logits.shape
    if labels.dtype == object or labels.dtype.kind not in "iuf":
        raise InputError(field, found=f"dtype {labels.dtype}", accepted="integers")
    if labels.ndim != 1:
        raise InputError(field, found=f"shape {labels.shape}", accepted=f"shape ({rows},)")
    if len(labels) != rows:
        raise InputError(field, found=f"{len(labels)} labels", accepted=f"{rows}, one a row")
    if labels.dtype.kind == "f":
        fractional = labels != np.floor(labels)  # NaN is unequal to itself, and so fractional
        if fractional.any():
            row = int(np.argmax(fractional))
            raise InputError(
                f"{field}[{first_row + row}]", found=f"{labels[row]:g}", accepted="whole numbers"
            )
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(np.argmax(outside))
        raise InputError(
            f"{field}[{first_row + row}]",
            found=f"{labels[row]:g}",
            accepted=f"integers from 0 to {classes - 1}",
        )
    checked = labels.astype(np.int64, copy=False)
    masked = np.isneginf(logits[np.arange(rows), checked])
    if masked.any():
        row = int(np.argmax(masked))
        raise InputError(
            f"{field}[{first_row + row}]",
            found=f"class {checked[row]}, which is masked (-inf) in this row",
            accepted="a class with a finite logit",
        )
    return checked


def check_weights(
    values: ArrayLike | None, *, rows: int, field: str = "weights"
) -> NDArray[np.float64] | None:
    """Return sample weights (N,) divided by their mean; none where all rows count the same.

    Raises
    ------
    InputError: wrong rank, dtype or length, not finite, negative, or all zero.
    """
    if values is None:
        return None
    weights = np.asarray(values)
    if weights.dtype == object or weights.dtype.kind not in "iuf":
        raise InputError(field, found=f"dtype {weights.dtype}", accepted="numbers")
    if weights.shape != (rows,):
        raise InputError(field, found=f"shape {weights.shape}", accepted=f"shape ({rows},)")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{field}[{row}]", found=f"{weights[row]:g}", accepted="finite numbers of at least 0"
        )
    wide = weights.astype(np.float64)
    largest = wide.max()
    if largest == 0:
        raise InputError(field, found="zeros only", accepted="at least one positive weight")
    wide /= largest  # so that no sum of them overflows
    return None if (wide == 1).all() else np.asarray(wide / wide.mean())


def _all_finite(logits: Floats) -> bool:
    if logits.size <= _FEW:
        return all(map(math.isfinite, logits.ravel().tolist()))
    # One that is not makes the sum so, too. What only overflows there is looked at one by one.
    return math.isfinite(np.einsum("ij->", logits))


def _matrix(values: ArrayLike, classes: int | None, field: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError:  # NumPy's own word for rows of different lengths
        raise InputError(
            field, found="rows of different lengths", accepted="a rectangular (N, K) array"
        ) from None
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.type not in _FLOATS:
        raise InputError(
            field, found=f"dtype {array.dtype}", accepted="float16, float32, float64 or integers"
        )
    if array.ndim != 2:
        raise InputError(field, found=f"shape {array.shape}", accepted="shape (N, K)")
    if array.shape[0] == 0:
        raise InputError(field, found="no rows", accepted="at least one row")
    if array.shape[1] < 2:
        raise InputError(field, found=f"{array.shape[1]} class(es)", accepted="at least 2 classes")
    if classes is not None and array.shape[1] != classes:
        raise InputError(field, found=f"{array.shape[1]} classes", accepted=f"{classes} classes")
    return array
