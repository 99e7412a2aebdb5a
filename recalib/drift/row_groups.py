"""Groups of dependent rows in a test: a group counts once.

Legend: N rows, U units. A unit is a row without a group, or all rows of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Numbers
from recalib.errors import InputError
from recalib.stats.groups import group_counts

Groups = NDArray[np.int64]
#: Rows of each unit (U,), which follow each other; None if each row is a unit.
Sizes = NDArray[np.int64] | None


def check_groups(groups: ArrayLike | None, rows: int) -> Groups:
    """Return the number of the group of each row (N,), 0 for none; all 0 without `groups`.

    Raises
    ------
    InputError: another shape, or values that are not integers from 0.
    """
    if groups is None:
        return np.zeros(rows, np.int64)
    values = np.asarray(groups)
    if values.shape != (rows,) or values.dtype.kind not in "iu" or (values < 0).any():
        found = f"shape {values.shape} of {values.dtype}, or a negative number"
        raise InputError("groups", found=found, accepted=f"({rows},) integers, 0 for no group")
    return values.astype(np.int64)


def unit_weights(groups: Groups) -> Numbers:
    """Return 1 / size of the group of each row (N,), so that the weights of a unit sum to 1."""
    _, where, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.where(groups == 0, 1.0, 1 / counts[where])


def arrange_units(groups: Groups) -> tuple[NDArray[np.intp], Sizes]:
    """Return an order of the rows (N,) that puts a group at its first row, and the units' sizes."""
    rows = np.arange(len(groups))
    _, first, where = np.unique(
        np.where(groups == 0, -1 - rows, groups), return_index=True, return_inverse=True
    )
    if len(first) == len(rows):
        return rows, None
    place = first[where]
    counts = group_counts(place)
    return np.argsort(place, kind="stable"), counts[counts > 0]


class RecentGroups:
    """The groups of the latest labels: a group counts in the first cohort that has it."""

    #: Largest number of groups; older ones are forgotten, so that the state is bounded.
    limit = 2_000

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        #: In the order of their last labels.
        self._numbers = dict.fromkeys(numbers)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def are_new(self, groups: Groups) -> NDArray[np.bool_]:
        """Return which rows (N,) are of no group or of one that has not counted."""
        return ~np.isin(groups, np.array(list(self._numbers), np.int64))

    def remember(self, groups: Groups) -> None:
        """Add the groups of rows (N,) in the order of time."""
        for number in groups[groups > 0].tolist():
            self._numbers.pop(number, None)
            self._numbers[number] = None
        for number in list(self._numbers)[: -self.limit]:
            del self._numbers[number]

    def state(self) -> list[int]:
        """Return the groups as JSON."""
        return list(self._numbers)


def unit_means(values: NDArray[Any], sizes: Sizes) -> NDArray[Any]:
    """Return the mean of the rows (N, ...) of each unit, (U, ...)."""
    if sizes is None:
        return values
    starts = np.cumsum(sizes) - sizes
    return (np.add.reduceat(values, starts, axis=0).T / sizes).T


def to_rows(values: NDArray[Any], sizes: Sizes) -> NDArray[Any]:
    """Return the value of the unit of each row, (N, ...), from those of units, (U, ...)."""
    return values if sizes is None else np.repeat(values, sizes, axis=0)
