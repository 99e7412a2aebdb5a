"""Validate input arrays. Other modules rely on arrays that have passed these checks.

Shapes: N rows (samples), K classes. Logits are (N, K), real, float16/32/64, where −inf marks a
class that is masked for that row. Labels are (N,), integers in [0, K). Scores of two classes may be
one column, that of class 1: see `two_columns`. Every check raises `InputError` naming the field,
what was found and what is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.options import check_choice
from recalib.errors import InputError

Floats = NDArray[np.floating[Any]]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: What sample weights are: how many rows of the population a row stands for, on any scale, or how
#: many equal rows it replaces.
WeightKind = Literal["survey", "counts"]

#: Up to this many numbers, Python is faster than NumPy: a NumPy call takes microseconds.
_MAX_PLAIN_COUNT = 64
_FLOATS = (np.float16, np.float32, np.float64)
#: How far a row of probabilities may be from summing to one: float16 rounds 1,000 classes to
#: about 1e-3, and anything beyond that is not a rounding error.
_SUM_TOLERANCE = 1e-2
#: Of rows that are surely probabilities.
_CERTAIN = 1e-3
#: Smaller probabilities are clipped to this before the logarithm: the float32 softmax of a
#: confident network underflows to 0, which means "below 1e-38", not "impossible".
SMALLEST_PROBABILITY = 1e-38
#: What to do with labels that scores of one column do not have.
_ONE_COLUMN = (
    "; scores (N,) are of class 1 of 2, of more classes a column each: (N, K), one row x[None], N "
    "rows x.reshape(N, K)"
)
#: As many log-odds are hardly ever all between 0 and 1.
_LEAST_SCORES = 10
#: Log-odds of no class are all positive up to so large.
_LEAST_PERCENTAGE = 30
_DIVIDE = ", as percentages are: divide by 100"
#: The largest sum of counts whose rows are repeated in memory.
_MAX_REPEATED = 100_000_000
#: What to write for logits that look like probabilities.
RESEMBLANCE_HINT = (
    'if these are probabilities, write input="probabilities", otherwise input="logits"'
)


def check_logits(
    values: ArrayLike, *, classes: int | None = None, field: str = "logits", first_row: int = 0
) -> Floats:
    """Return `values` as an (N, K) array of floats; float dtypes are kept.

    One column, (N,) or (N, 1), is the log-odds of class 1 of 2, see `two_columns`. Integers become
    float64; −inf (a masked class) is valid if the row has a finite logit.

    Parameters
    ----------
    classes: the expected K, if known.
    field: the name of the array in errors.
    first_row: added to row numbers in errors, for callers that check a file in chunks.

    Raises
    ------
    InputError: wrong rank or dtype, empty, fewer than two classes, another K than `classes`,
        NaN, +inf, or a row whose classes are all masked.
    """
    return check_finite(check_matrix(values, classes, field, "logits"), field, first_row)


def check_finite(logits: Floats, field: str, first_row: int = 0) -> Floats:
    """Return `logits` (N, K); raise `InputError` for NaN, +inf or a row of −inf only."""
    if logits.size <= _MAX_PLAIN_COUNT:
        is_finite = all(map(math.isfinite, logits.ravel().tolist()))
    else:
        # The sum is not finite if a logit is not. It may overflow too, so each is then checked.
        is_finite = math.isfinite(np.einsum("ij->", logits))
    if is_finite:  # the usual case
        return logits
    accepted = "finite numbers, and -inf for a masked class"
    invalid: NDArray[np.bool_] = np.isnan(logits) | np.isposinf(logits)
    refuse_first(
        invalid, logits, field, accepted, first_row, lambda z: "NaN" if np.isnan(z) else "+inf"
    )
    masked: NDArray[np.bool_] = np.isneginf(logits.max(axis=1))
    accepted, found = "at least one finite logit in each row", "every class masked (-inf)"
    refuse_first(masked, logits, field, accepted, first_row, lambda _: found)
    return logits


def refuse_first(
    invalid: NDArray[np.bool_],
    values: NDArray[Any],
    field: str,
    accepted: str,
    first_row: int = 0,
    found: Callable[[Any], str] = "{:g}".format,
) -> None:
    """Raise `InputError` for the first of invalid values, (N,) or (N, K), if there is one.

    Parameters
    ----------
    values: (N, ...); `found` describes the invalid one.
    first_row: added to the number of the row.
    """
    if not invalid.any():
        return
    index = tuple(np.argwhere(invalid)[0].tolist())
    place = "".join(f"[{number}]" for number in (first_row + index[0], *index[1:]))
    raise InputError(field + place, found=found(values[index]), accepted=accepted)


def check_probabilities(
    values: ArrayLike,
    *,
    classes: int | None = None,
    field: str = "probabilities",
    first_row: int = 0,
) -> Floats:
    """Return `values` as an (N, K) array of probabilities; float dtypes are kept.

    One column, (N,) or (N, 1), is the probability of class 1 of 2, see `two_columns`.

    Raises
    ------
    InputError: as `check_logits`; also for a value outside [0, 1], or a row whose sum differs from
        1 by more than 0.01 (as rows of logits do).
    """
    probabilities = check_matrix(values, classes, field, "probabilities")
    invalid = ~((probabilities >= 0) & (probabilities <= 1))
    accepted = "probabilities between 0 and 1 (are these logits?)"
    refuse_first(invalid, probabilities, field, accepted, first_row)
    sums: NDArray[np.float64] = np.sum(probabilities, axis=1, dtype=np.float64)
    off, found = np.abs(sums - 1) > _SUM_TOLERANCE, "a sum of {:.6g}".format
    refuse_first(off, sums, field, "rows that sum to 1", first_row, found)
    return probabilities


def two_columns(scores: NDArray[Any], input: str) -> NDArray[Any]:
    """Return (N, 2) from scores of class 1 of 2, (N,) or (N, 1).

    Parameters
    ----------
    input: `logits` for log-odds d, which become (0, d); `probabilities` for p, which become
        (1 − p, p).

    Examples
    --------
    >>> two_columns(np.array([0.25, 0.5]), "probabilities").tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    """
    column = scores.reshape(len(scores)).astype(
        np.promote_types(scores.dtype, np.float16), copy=False
    )
    # Clipped, so that the check of a p outside [0, 1] finds p itself.
    other = np.clip(1 - column, 0, 1) if input == "probabilities" else np.zeros_like(column)
    return np.stack([other, column], axis=1)


def probability_resemblance(logits: Floats) -> str:
    """Return why checked logits look like probabilities or percentages, "" if they do not.

    One-hot rows do not.
    """
    if logits.shape[1] == 2 and not logits[:, 0].any():  # scores of class 1
        p = logits[:, 1]
        if len(p) < _LEAST_SCORES or p.min() < 0 or not (p % 1).any() or p.max() > 100:
            return ""
        if p.max() > _LEAST_PERCENTAGE:
            return f"all scores are between 0 and 100{_DIVIDE}"
        return "all scores are between 0 and 1" if p.max() <= 1 else ""
    if not (total := _common_sum(logits[:1])):  # enough for logits in practice
        return ""
    if _common_sum(logits) != total or not (logits % 1).any():
        return ""
    return f"every row is non-negative and sums to {total}{'' if total == 1 else _DIVIDE}"


def check_undeclared(logits: Floats) -> str:
    """Return `probability_resemblance` of scores without a stated kind.

    Raises
    ------
    InputError: the scores are surely not logits: ten rows and more, all of which are non-negative
        with a sum of 1 or of 100 within 0.1%, or all of which are predicted classes, 0 and 1.
    """
    reason, is_long = probability_resemblance(logits), len(logits) >= _LEAST_SCORES
    if reason and is_long and _common_sum(logits, _CERTAIN):
        found = f"rows that are no logits: {reason}"
        raise InputError("logits", found=found, accepted=RESEMBLANCE_HINT)
    if is_long and logits.min() == 0 and logits.max() == 1 and not (logits % 1).any():
        is_column = logits.shape[1] == 2 and not logits[:, 0].any()
        if is_column or _common_sum(logits) == 1:
            accepted = (
                "the logits or probabilities of which they are the argmax, or if these numbers are "
                'meant, input="logits" or input="probabilities"'
            )
            raise InputError("logits", found="predicted classes, 0 and 1", accepted=accepted)
    return reason


def undeclared_text(reason: str) -> str:
    """Return the warning about logits that look like probabilities for a reason."""
    return f"logits: {reason}; {RESEMBLANCE_HINT}"


def _common_sum(rows: Floats, tolerance: float = _SUM_TOLERANCE) -> int:
    """Return the sum of each of non-negative rows, 1 or 100; 0 for any other."""
    if rows.min() < 0:
        return 0
    sums = rows.sum(axis=1, dtype=np.float64)
    for total in (1, 100):
        if np.abs(sums - total).max() <= tolerance * total:
            return total
    return 0


def log_probabilities(probabilities: Floats) -> Floats:
    """Return the clipped logarithm of valid probabilities, for use as logits.

    float16 becomes float32, because float16 cannot hold 1e-38.
    """
    wide = probabilities.astype(np.promote_types(probabilities.dtype, np.float32), copy=False)
    return np.log(np.maximum(wide, wide.dtype.type(SMALLEST_PROBABILITY)))


def centre_log_odds(logits: Floats) -> Floats:
    """Return −d/2 and d/2, d = z₁ − z₀, for logits of two classes (N, 2); −inf masks a class.

    float16 becomes float32, which keeps d.
    """
    wide = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
    half = (wide[:, 1] - wide[:, 0]) / 2
    centred = np.stack([-half, half], axis=1)
    unmasked = np.isfinite(half)
    return np.where(unmasked[:, None], centred, np.where(np.isneginf(wide), -np.inf, 0.0)).astype(
        wide.dtype
    )


def check_labels(
    values: ArrayLike, *, logits: Floats, field: str = "labels", first_row: int = 0
) -> Integers:
    """Return `values`, (N,) or (N, 1), as (N,) int64 labels of the rows of valid `logits` (N, K).

    Floats with integer values are accepted, because CSV has no integer type; and of two classes
    truth values, and −1 and 1 for 0 and 1.

    Raises
    ------
    InputError: wrong rank, dtype or length, fractional, outside [0, K), or on a masked class.
    """
    labels = np.asarray(values)
    rows, classes = logits.shape
    if labels.dtype.kind == "b" and classes == 2:
        labels = labels.astype(np.int64)
    if labels.dtype == object or labels.dtype.kind not in "iuf":
        raise InputError(field, found=f"dtype {labels.dtype}", accepted="integers")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(field, found=f"shape {labels.shape}", accepted=f"shape ({rows},)")
    if len(labels) != rows:
        is_flat = classes == 2 and len(labels) and rows % len(labels) == 0
        accepted = f"{rows}, one a row{_ONE_COLUMN if is_flat else ''}"
        raise InputError(field, found=f"{len(labels)} labels", accepted=accepted)
    if labels.dtype.kind == "f":
        fractional = labels != np.floor(labels)  # true for NaN too
        refuse_first(fractional, labels, field, "whole numbers", first_row)
    outside = (labels < 0) | (labels >= classes)
    if outside.any() and classes == 2 and np.isin(labels, (-1, 1)).all():
        labels, outside = (labels > 0).astype(np.int64), np.zeros(rows, bool)
    if outside.any():
        accepted = f"integers from 0 to {classes - 1}"
        if labels.min() == 1 and labels.max() == classes:
            accepted += "; these labels go from 1 to the number of classes: subtract 1"
        elif classes == 2 and labels.max() > 1:
            accepted += _ONE_COLUMN
        refuse_first(outside, labels, field, accepted, first_row)
    checked = labels.astype(np.int64, copy=False)
    masked = np.isneginf(logits[np.arange(rows), checked])
    found = "class {}, which is masked (-inf) in this row".format
    refuse_first(masked, checked, field, "a class with a finite logit", first_row, found)
    return checked


def check_weights(
    values: ArrayLike | None, *, rows: int, field: str = "weights", kind: WeightKind = "survey"
) -> NDArray[np.float64] | None:
    """Return sample weights (N,) whose sum is the effective number of rows, or None if all are 1.

    That number is Kish's (Σw)² / Σw² for `survey` weights, which may have any scale: N for equal
    ones. It is Σw for `counts`, which stay as they are.

    Source: Kish, Survey Sampling, 1965, section 11.7.

    Raises
    ------
    InputError: wrong rank, dtype or length, not finite, negative, all zero, or an unknown kind.
    """
    check_choice("weight_kind", kind, WeightKind)
    if values is None:
        return None
    weights = check_row_weights(values, rows, field)
    largest = weights.max()
    if largest == 0:
        raise InputError(field, found="zeros only", accepted="at least one positive weight")
    if kind == "survey":
        weights /= largest  # so that their squares do not overflow
        weights *= weights.sum() / (weights @ weights)
    elif not np.isfinite(weights.sum()):
        raise InputError(field, found="counts whose sum is infinite", accepted="a finite sum")
    return None if (weights == 1).all() else weights


def drop_rows_without_weight(
    weights: NDArray[np.float64] | None, *arrays: NDArray[Any] | None
) -> tuple[Any, ...]:
    """Return checked weights (N,) and arrays (N, ...) without the rows of weight 0.

    Weights that are then all 1, and arrays that are None, are None.
    """
    if weights is None or weights.all():
        return weights, *arrays
    rows = np.flatnonzero(weights)
    weights = weights[rows]
    rest = [None if array is None else array[rows] for array in arrays]
    return None if (weights == 1).all() else weights, *rest


def repeated_rows(counts: ArrayLike, *, rows: int, field: str) -> NDArray[np.intp]:
    """Return the index of each of N = `rows` rows, as often as it counts.

    Raises
    ------
    InputError: as `check_weights`; counts that are not whole, or a sum above 100,000,000.
    """
    check_weights(counts, rows=rows, field=field, kind="counts")
    times = check_row_weights(counts, rows, field)
    if times.sum() > _MAX_REPEATED or (times != np.rint(times)).any():
        accepted = f"whole numbers, of a sum of at most {_MAX_REPEATED:,}"
        raise InputError(field, found="counts that cannot be repeated", accepted=accepted)
    return np.repeat(np.arange(rows), times.astype(np.intp))


def check_row_weights(
    values: ArrayLike, rows: int, field: str = "weights", first_row: int = 0
) -> NDArray[np.float64]:
    """Return sample weights (N,) as they are, in float64; all may be zero.

    Raises
    ------
    InputError: wrong rank, dtype or length, not finite or negative. Errors count from `first_row`.
    """
    weights = np.asarray(values)
    if weights.dtype == object or weights.dtype.kind not in "iuf":
        raise InputError(field, found=f"dtype {weights.dtype}", accepted="numbers")
    if weights.shape != (rows,):
        raise InputError(field, found=f"shape {weights.shape}", accepted=f"shape ({rows},)")
    invalid = ~(np.isfinite(weights) & (weights >= 0))
    refuse_first(invalid, weights, field, "finite numbers of at least 0", first_row)
    return weights.astype(np.float64)


def check_matrix(
    values: ArrayLike, classes: int | None, field: str, input: str | None = None
) -> Floats:
    """Return `values` as an (N, K) array of floats, with any values.

    Parameters
    ----------
    input: `logits` or `probabilities` if one column is that of class 1 of 2; None if it is an
        error.

    Raises
    ------
    InputError: wrong rank or dtype, empty, fewer than two classes, another K than `classes`.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # NumPy raises it for rows of different lengths
        raise InputError(
            field, found="rows of different lengths", accepted="a rectangular (N, K) array"
        ) from None
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.type not in _FLOATS:
        raise InputError(
            field, found=f"dtype {array.dtype}", accepted="float16, float32, float64 or integers"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)  # torch takes no other
    if input is not None and classes in (None, 2) and array.ndim and array.shape[1:] in ((), (1,)):
        array = two_columns(array, input)
    if array.ndim != 2:
        hint = f"; one row is x[None], (1, {len(array)})" if array.ndim == 1 else ""
        raise InputError(field, found=f"shape {array.shape}", accepted=f"shape (N, K){hint}")
    if array.shape[0] == 0:
        raise InputError(field, found="no rows", accepted="at least one row")
    if array.shape[1] < 2:
        raise InputError(field, found=f"{array.shape[1]} class(es)", accepted="at least 2 classes")
    if classes is not None and array.shape[1] != classes:
        raise InputError(field, found=f"{array.shape[1]} classes", accepted=f"{classes} classes")
    return array
