"""Checks of confidences and correctness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Numbers
from recalib.errors import InputError


def check_array(name: str, values: NDArray[Any], legal: Any, problem: str, accepted: str) -> None:
    """Raise `InputError` for an array of another shape, or with the problem, if it is not legal."""
    if not legal:
        raise InputError(name, found=f"shape {values.shape}, or {problem}", accepted=accepted)


def check_confidences(confidences: ArrayLike) -> Numbers:
    """Return confidences (N,) in [0, 1] as float64.

    Raises
    ------
    InputError: another shape, or a value out of range; NaN is out of range.
    """
    values = np.asarray(confidences, np.float64)
    legal = values.ndim == 1 and np.all((values >= 0) & (values <= 1))
    check_array("confidences", values, legal, "a value out of range", "(N,) in [0, 1]")
    return values


def check_rows(confidences: ArrayLike, correct: ArrayLike) -> tuple[Numbers, Numbers]:
    """Return confidences (N,) in [0, 1] and correctness (N,), zeros and ones, as float64.

    Raises
    ------
    InputError: shapes that differ, or values out of range.
    """
    p, y = check_confidences(confidences), np.asarray(correct, np.float64)
    legal = y.shape == p.shape and np.all((y == 0) | (y == 1))
    problem = "a value that is neither 0 nor 1"
    check_array("correct", y, legal, problem, f"{p.shape}, zeros and ones")
    return p, y


def check_finite_array(name: str, values: Numbers, shape: Any, unit: str) -> None:
    """Raise `InputError` unless an array has this shape and finite numbers."""
    legal = values.shape == shape and np.isfinite(values).all()
    check_array(name, values, legal, "a value that is not finite", f"{shape}, {unit}")
