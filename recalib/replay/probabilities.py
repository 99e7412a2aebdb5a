"""The columns `probabilities` and `labels` of a log: one list per row, all of the same length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, check_probabilities, refuse_first
from recalib.core.label_arrays import check_label_scores
from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

#: Tolerance between a confidence and the largest probability of its row: logs round to two digits.
TOLERANCE = 0.01


def is_lists(kind: Any, *of: Callable[[Any], bool]) -> bool:
    """Return whether a column type is a list of values of one of these types."""
    types = pa.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and any(is_type(kind.value_type) for is_type in of))


def matrix_of(
    column: Any, first_row: int, classes: int | None, *, multilabel: bool = False
) -> Floats:
    """Return the probabilities of a column (N, K), checked; errors count rows from `first_row`.

    Those of multilabel rows have any sum. Numbers, or lists of one number, are P(y = 1) of two
    classes.

    Raises
    ------
    InputError: a row is null, has a length other than `classes` (by default that of the first
        row), or does not hold probabilities.
    """
    if not multilabel and pa.types.is_floating(column.type):
        column = pa.FixedSizeListArray.from_arrays(column, 1)
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    expected = int(lengths[0]) if classes is None else classes
    if expected == 2 and lengths[0] == 1 and not multilabel:
        expected = 1
    accepted = f"{expected} classes, as before" if expected >= 0 else "a list of probabilities"
    refuse_first(
        lengths != max(expected, 0), lengths, "probabilities", accepted, first_row,
        lambda length: "null" if length < 0 else f"{length} classes",
    )  # fmt: skip
    values = pc.list_flatten(column)
    if values.null_count:
        row = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False))) // expected
        accepted = "numbers between 0 and 1"
        raise InputError(f"probabilities[{first_row + row}]", found="null", accepted=accepted)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), expected)
    if multilabel:
        return check_label_scores(matrix, input="probabilities", first_row=first_row)
    return check_probabilities(matrix, classes=classes, first_row=first_row)


def number_text(value: float) -> str:
    """Return a value of a column for an error."""
    return "null or NaN" if np.isnan(value) else f"{value:g}"


def label_sets_of(
    column: Any, first_row: int, classes: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the labels (N, K) of a column, and which rows have them (N,).

    Raises
    ------
    InputError: a row has another length than `classes`, or values other than 0 and 1; null is a row
        whose labels are not known.
    """
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    labelled: NDArray[np.bool_] = lengths >= 0
    wrong = labelled & (lengths != classes)
    accepted = f"{classes}, as in `probabilities`; null where labels are not known"
    refuse_first(wrong, lengths, "labels", accepted, first_row, str)
    # Null lists of a fixed size have values, which count for nothing.
    values = pc.list_flatten(pc.drop_null(column)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    sets = np.zeros((len(column), classes))
    sets[labelled] = values.reshape(-1, classes)
    other = ~((sets == 0) | (sets == 1))  # also NaN
    refuse_first(other, sets, "labels", "0 or 1", first_row, number_text)
    return sets == 1, labelled


def check_largest_probabilities(
    confidence: NDArray[np.float64], matrix: Floats, first_row: int
) -> None:
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
