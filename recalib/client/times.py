"""Times of predictions as users have them: seconds, or datetimes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import refuse_first
from recalib.core.inputs import as_array, is_missing
from recalib.errors import InputError

#: Seconds since 1970, or datetimes; those without a time zone are in UTC, as in logs.
Times: TypeAlias = Sequence[float | datetime] | NDArray[np.floating | np.datetime64]

_ACCEPTED = "finite numbers of seconds since 1970, or datetimes"


def check_times(times: Times, rows: int) -> NDArray[np.float64]:
    """Return `times` (N,) as seconds since 1970.

    Raises
    ------
    InputError: other than one time a row, or a time that is missing or neither of the two.
    """
    values = as_array(times, "times")
    if values.dtype.kind == "O":  # datetimes of Python, and of pandas with a time zone
        values = np.array([_seconds(value, row) for row, value in enumerate(values.tolist())])
    if values.dtype.kind == "M":
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    if values.dtype.kind not in "iuf":
        raise InputError("times", found=f"dtype {values.dtype}", accepted=_ACCEPTED)
    if values.shape != (rows,):
        found = f"{len(values)} times" if values.ndim == 1 else f"shape {values.shape}"
        raise InputError("times", found=found, accepted=f"{rows}, one for each row")
    refuse_first(~np.isfinite(values), values, "times", _ACCEPTED)
    return values.astype(np.float64)


def _seconds(value: Any, row: int) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if not isinstance(value, int | float):
        raise InputError(f"times[{row}]", found=f"{value!r:.60}", accepted=_ACCEPTED)
    return float(value)
