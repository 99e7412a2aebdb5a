"""The column `probabilities` of a log: one list per row, all of the same length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, check_probabilities
from recalib.errors import InputError
from recalib.lazy_import import LazyModule

__all__ = ["TOLERANCE", "check_confidences", "is_lists", "matrix_of"]

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

#: Tolerance between a confidence and the largest probability of its row: logs round to two digits.
TOLERANCE = 0.01


def is_lists(kind: Any) -> bool:
    """Return whether a column type is a list of floats."""
    types = pa.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and types.is_floating(kind.value_type))


def matrix_of(column: Any, first_row: int, classes: int | None) -> Floats:
    """Return the probabilities of a column (N, K), checked; errors count rows from `first_row`.

    Raises
    ------
    InputError: a row is null, has a length other than `classes` (by default that of the first
        row), or does not hold probabilities.
    """
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    expected = int(lengths[0]) if classes is None else classes
    invalid = lengths != max(expected, 0)
    if invalid.any():
        row = int(np.argmax(invalid))
        found = "null" if lengths[row] < 0 else f"{lengths[row]} classes"
        accepted = f"{expected} classes, as before" if expected >= 0 else "a list of probabilities"
        raise InputError(f"probabilities[{first_row + row}]", found=found, accepted=accepted)
    values = pc.list_flatten(column)
    if values.null_count:
        row = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False))) // expected
        accepted = "numbers between 0 and 1"
        raise InputError(f"probabilities[{first_row + row}]", found="null", accepted=accepted)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), expected)
    return check_probabilities(matrix, first_row=first_row)


def check_confidences(confidence: NDArray[np.float64], matrix: Floats, first_row: int) -> None:
    """Raise `InputError` for a confidence that is not the largest probability of its row."""
    largest = matrix.max(axis=1)
    off = np.abs(confidence - largest) > TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"confidence[{first_row + row}]",
            found=f"{confidence[row]:g}",
            accepted=f"{largest[row]:g}, the largest of the row's `probabilities`",
        )
