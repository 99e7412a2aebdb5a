"""Checks of confidences and correctness."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from recalib.core.arrays import Numbers
from recalib.errors import InputError


def check_confidences(confidences: ArrayLike) -> Numbers:
    """Return confidences (N,) in [0, 1] as float64.

    Raises
    ------
    InputError: another shape, or a value out of range; NaN is out of range.
    """
    values = np.asarray(confidences, np.float64)
    if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
        raise InputError(
            "confidences",
            found=f"shape {values.shape}, or a value out of range",
            accepted="(N,) in [0, 1]",
        )
    return values


def check_rows(confidences: ArrayLike, correct: ArrayLike) -> tuple[Numbers, Numbers]:
    """Return confidences (N,) in [0, 1] and correctness (N,), zeros and ones, as float64.

    Raises
    ------
    InputError: shapes that differ, or values out of range.
    """
    p, y = check_confidences(confidences), np.asarray(correct, np.float64)
    if y.shape != p.shape or not np.all((y == 0) | (y == 1)):
        raise InputError(
            "correct",
            found=f"shape {y.shape}, or a value that is neither 0 nor 1",
            accepted=f"{p.shape}, zeros and ones",
        )
    return p, y
