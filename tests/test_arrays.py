"""Invalid arrays raise `InputError` with the field, the value and what is accepted."""

from __future__ import annotations

import numpy as np
import pytest

from recalib.core.arrays import (
    check_labels,
    check_logits,
    check_probabilities,
    check_weights,
    log_probabilities,
)
from recalib.errors import InputError

VALID = np.array([[1.0, 2.0], [3.0, -np.inf]])

BAD_LOGITS = [
    ("NaN", [[1.0, np.nan]], "logits[0][1]", "NaN"),
    ("+inf", [[1.0, 2.0], [np.inf, 0.0]], "logits[1][0]", "+inf"),
    ("all masked", [[1.0, 2.0], [-np.inf, -np.inf]], "logits[1]", "every class masked"),
    ("rank 0", 1.0, "logits", "shape ()"),
    ("rank 3", np.zeros((1, 2, 2)), "logits", "shape (1, 2, 2)"),
    ("no rows", np.zeros((0, 2)), "logits", "no rows"),
    ("no class", np.zeros((3, 0)), "logits", "0 class"),
    ("ragged", [[1.0, 2.0], [3.0]], "logits", "different lengths"),
    ("objects", np.array([[None, 1.0]], dtype=object), "logits", "dtype object"),
    ("text", [["a", "b"]], "logits", "dtype <U1"),
    ("booleans", [[True, False]], "logits", "dtype bool"),
    ("complex", [[1j, 2.0]], "logits", "dtype complex128"),
]


@pytest.mark.parametrize(
    ("values", "field", "description"), [b[1:] for b in BAD_LOGITS], ids=[b[0] for b in BAD_LOGITS]
)
def test_invalid_logits_are_rejected(values: object, field: str, description: str) -> None:
    with pytest.raises(InputError) as excinfo:
        check_logits(values)
    assert excinfo.value.field == field
    assert description in excinfo.value.found
    assert excinfo.value.accepted


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_column_is_that_of_class_1(shape: tuple[int, ...]) -> None:
    scores = np.array([0.25, 1.0], np.float32).reshape(shape)
    assert check_logits(scores).tolist() == [[0, 0.25], [0, 1]]
    assert check_probabilities(scores, classes=2).tolist() == [[0.75, 0.25], [0, 1]]
    assert check_logits(scores).dtype == np.float32
    np.testing.assert_array_equal(
        check_labels(np.array([1, 0]).reshape(shape), logits=VALID), [1, 0]
    )
    with pytest.raises(InputError, match=r"logits: found (shape|1 class).*; accepted: \w+"):
        check_logits(scores, classes=3)
    with pytest.raises(InputError, match=r"probabilities\[1\]\[1\]: found 1.5; accepted"):
        check_probabilities([0.5, 1.5])


def test_wrong_number_of_classes_is_rejected() -> None:
    with pytest.raises(InputError, match=r"logits: found 2 classes; accepted: 3 classes"):
        check_logits(VALID, classes=3)


def test_row_numbers_are_global_across_chunks() -> None:
    with pytest.raises(InputError, match=r"logits\[1001\]\[0\]"):
        check_logits([[0.0, 1.0], [np.nan, 1.0]], first_row=1000)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_dtypes_are_kept(dtype: type) -> None:
    assert check_logits(VALID.astype(dtype)).dtype == dtype


def test_huge_finite_logits_are_accepted() -> None:
    """Their sum overflows, but no logit is infinite."""
    check_logits(np.full((3, 2), 1e308))


BAD_LABELS = [
    ("negative", [0, -1], "labels[1]", "-1"),
    ("K", [2, 0], "labels[0]", "2"),
    ("fractional", [0.0, 0.5], "labels[1]", "0.5"),
    ("NaN", [0.0, np.nan], "labels[1]", "nan"),
    ("too few", [0], "labels", "1 labels"),
    ("rank 2", [[0, 1], [1, 0]], "labels", "shape (2, 2)"),
    ("text", ["a", "b"], "labels", "dtype <U1"),
    ("masked", [0, 1], "labels[1]", "masked"),
    ("beyond int64", np.array([0, 2**64 - 1], np.uint64), "labels[1]", "1.84467e+19"),
]


@pytest.mark.parametrize(
    ("values", "field", "description"), [b[1:] for b in BAD_LABELS], ids=[b[0] for b in BAD_LABELS]
)
def test_invalid_labels_are_rejected(values: object, field: str, description: str) -> None:
    with pytest.raises(InputError) as excinfo:
        check_labels(values, logits=VALID)
    assert excinfo.value.field == field
    assert description in excinfo.value.found


@pytest.mark.parametrize("values", [[True, False], [1, -1], [[1.0], [-1.0]]])
def test_labels_of_two_classes_are_truth_values_or_signs(values: object) -> None:
    assert check_labels(values, logits=VALID).tolist() == [1, 0]
    with pytest.raises(InputError, match="labels"):
        check_labels(values, logits=np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32])
def test_integral_labels_of_any_dtype_are_accepted(dtype: type) -> None:
    labels = check_labels(np.array([1, 0], dtype), logits=VALID)
    assert labels.dtype == np.int64
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "description"),
    [([[2.0, -1.0]], "2"), ([[0.5, 0.4]], "a sum of 0.9"), ([[np.nan, 1.0]], "nan")],
)
def test_logits_passed_as_probabilities_are_rejected(values: object, description: str) -> None:
    with pytest.raises(InputError) as excinfo:
        check_probabilities(values)
    assert description in excinfo.value.found


def test_float16_probabilities_of_many_classes_are_accepted() -> None:
    """Their sum differs from 1 by rounding only."""
    rows = np.random.default_rng(0).dirichlet(np.ones(1000), size=5).astype(np.float16)
    check_probabilities(rows)


def test_logarithms_of_zero_are_clipped_and_finite() -> None:
    logs = log_probabilities(np.array([[0.0, 1.0]], np.float32))
    assert np.isfinite(logs).all()
    assert logs[0, 0] == pytest.approx(np.log(1e-38), rel=1e-6)
    assert log_probabilities(np.array([[0, 1]], np.float16)).dtype == np.float32


def test_arrays_in_the_other_byte_order_become_native() -> None:
    """As FITS, HDF5 and Fortran files give them; torch takes no other than the machine's."""
    logits = check_logits(np.array([[1.0, 2.0], [3.0, -np.inf]], ">f4"))
    np.testing.assert_array_equal(logits, np.array([[1, 2], [3, -np.inf]], np.float32))
    assert logits.dtype == np.float32
    assert logits.dtype.isnative
    assert check_labels(np.array([1, 0], ">i8"), logits=logits).dtype.isnative
    weights = check_weights(np.array([1.0, 3.0], ">f8"), rows=2)
    assert weights is not None
    assert weights.dtype.isnative
