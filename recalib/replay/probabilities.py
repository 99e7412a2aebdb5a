"""The column `probabilities` of a log: a list a row, of as many classes in all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, check_probabilities
from recalib.errors import InputError
from recalib.lazy_import import LazyModule

__all__ = ["check_confidences", "is_lists", "matrix_of"]

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

#: How far a confidence may be from the row's largest probability: logs round to two digits.
_OFF = 0.01


def is_lists(kind: Any) -> bool:
    """Return whether a column is of lists of floats."""
    types = pa.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and types.is_floating(kind.value_type))


def matrix_of(column: Any, first_row: int, classes: int | None) -> Floats:
    """Return a column's probabilities (N, K), checked; rows count from `first_row` in errors.

    Raises
    ------
    InputError: a row that is null or of another length than `classes`, or than the first where
        that is not known; values that are no probabilities.
    """
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    wanted = int(lengths[0]) if classes is None else classes
    other = lengths != max(wanted, 0)
    if other.any():
        row = int(np.argmax(other))
        found = "null" if lengths[row] < 0 else f"{lengths[row]} classes"
        accepted = f"{wanted} classes, as before" if wanted >= 0 else "a list of probabilities"
        raise InputError(f"probabilities[{first_row + row}]", found=found, accepted=accepted)
    values = pc.list_flatten(column)
    if values.null_count:
        row = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False))) // wanted
        accepted = "numbers between 0 and 1"
        raise InputError(f"probabilities[{first_row + row}]", found="null", accepted=accepted)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), wanted)
    return check_probabilities(matrix, first_row=first_row)


def check_confidences(confidence: NDArray[np.float64], matrix: Floats, first_row: int) -> None:
    """Raise `InputError` for a confidence that is not its row's largest probability."""
    largest = matrix.max(axis=1)
    off = np.abs(confidence - largest) > _OFF
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"confidence[{first_row + row}]",
            found=f"{confidence[row]:g}",
            accepted=f"{largest[row]:g}, the largest of the row's `probabilities`",
        )
