"""Times of a log in any usual form, in seconds since 1970-01-01 UTC."""

from __future__ import annotations

from typing import Any

import numpy as np

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")

#: The end of the year 9999. A larger number is no number of seconds.
LATEST = 253_402_300_799.0
#: Numbers since 1970 by unit. Those of a unit are larger than `LATEST` of the unit before, so no
#: number after 1978 belongs to two.
_UNITS = {"seconds": 1e0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
#: The time zone at the end of an ISO text, after its time of day.
_ZONE = r"\d[Tt ]\d.*([Zz]|[+-]\d\d(:?\d\d)?)$"
_ACCEPTED = (
    "seconds, milliseconds, microseconds or nanoseconds since 1970, or a date and time as in"
    " 2026-01-31T23:59:59Z, of the years 1678 to 2261"
)


def seconds_of(column: Any, name: str, first_row: int) -> tuple[Any, str | None]:
    """Return an Arrow column of seconds since 1970, or of timestamps, and the form of the times.

    The form is `timestamps`, `dates`, `texts with a time zone`, `texts in UTC` (without a zone),
    `seconds`, `milliseconds`, `microseconds` or `nanoseconds`; None if all are null.

    Raises
    ------
    InputError: a text is neither a number nor a time, or not all have the same form.
    """
    if column.null_count == len(column):
        return column, None
    if pa.types.is_timestamp(column.type):
        return column, "timestamps"
    if pa.types.is_date(column.type):
        return pc.cast(column, pa.timestamp("ms")), "dates"
    if is_text(column.type):
        text = decoded(column)
        try:
            column = pc.cast(text, pa.float64())
        except pa.ArrowInvalid:
            return _from_texts(text, name, first_row)
    return _from_numbers(column, name, first_row)


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is one of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def decoded(column: Any) -> Any:
    """Return a column of texts without its dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def cast_texts(texts: Any, kind: Any, name: str, first_row: int, accepted: str) -> Any:
    """Return texts as values of an Arrow type.

    Raises
    ------
    InputError: a text is no such value; the error names the row.
    """
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        for row, text in enumerate(texts):
            try:
                pc.cast(text, kind)
            except pa.ArrowInvalid:
                found = f"{text.as_py()!r:.60}"
                raise InputError(
                    f"{name}[{first_row + row}]", found=found, accepted=accepted
                ) from None
        raise


def _from_texts(texts: Any, name: str, first_row: int) -> tuple[Any, str]:
    is_zoned = pc.match_substring_regex(pc.drop_null(texts)[0], _ZONE).as_py()
    kind = pa.timestamp("ns", "UTC" if is_zoned else None)
    form = "texts with a time zone" if is_zoned else "texts in UTC"
    accepted = f"{form}, as in the rows before" if first_row else _ACCEPTED
    return cast_texts(texts, kind, name, first_row, accepted), form


def _from_numbers(column: Any, name: str, first_row: int) -> tuple[Any, str]:
    numbers = pc.cast(column, pa.float64(), safe=False)
    values = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    known = np.isfinite(values)
    units, scales = list(_UNITS), np.array(list(_UNITS.values()))
    largest = LATEST * scales[:-1]
    unit = np.searchsorted(largest, np.abs(values))
    if not known.any():
        return numbers, units[0]
    first = unit[known][0]
    other = known & (unit != first)
    if other.any():
        row = int(np.argmax(other))
        accepted = f"{units[first]} since 1970, as in the other rows"
        found = f"{values[row]:g}, as if in {units[unit[row]]}"
        raise InputError(f"{name}[{first_row + row}]", found=found, accepted=accepted)
    return pa.array(values / scales[first]), units[first]
