"""Which rows the map is fitted on, and which give the thresholds of prediction sets."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.core.card import SetOptions
from recalib.errors import InputError

_Rows = NDArray[np.intp]


def halves(rows: int) -> list[_Rows]:
    """Return two random halves of the rows; the first has one more if their number is odd."""
    order = np.random.default_rng(0).permutation(rows)
    return [np.sort(half) for half in np.array_split(order, 2)]


def check_folds(folds: int | None, options: SetOptions | None, rows: int) -> None:
    """Raise `InputError` for folds without sets, or another number than 2 to the rows."""
    if folds is None:
        return
    if options is None:
        raise InputError("sets_folds", found=f"{folds}", accepted="only together with sets")
    if not (isinstance(folds, Integral) and 2 <= folds <= rows):
        raise InputError("sets_folds", found=f"{folds!r:.80}", accepted=f"2 to {rows}, the rows")


def out_of_fold(predict: Callable[[_Rows, _Rows], Numbers], rows: int, folds: int) -> Numbers:
    """Return probabilities of all rows, (N, K), each by a fit on the rows of the other folds.

    Parameters
    ----------
    predict: takes the rows of a fit and those of its fold, and returns the probabilities of these.
    """
    order = np.random.default_rng(0).permutation(rows)
    parts = np.array_split(order, folds)
    predictions = [predict(np.setdiff1d(order, part), part) for part in parts]
    return np.concatenate(predictions)[np.argsort(order)]
