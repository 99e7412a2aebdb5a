"""Text for the times of a log: seconds since 1970 are dates, other times are numbers."""

from __future__ import annotations

from datetime import UTC, datetime

#: Seconds since 1970 of September 2001; smaller times of a log are relative.
_MIN_DATE_SECONDS = 1e9


def time_text(seconds: float) -> str:
    """Return a date and time in UTC to the minute, or the number if it is relative."""
    if seconds < _MIN_DATE_SECONDS:
        return f"{seconds:,.0f}"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return f"{seconds:,.0f}"
