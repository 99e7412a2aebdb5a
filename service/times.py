"""Times on the wire: ISO 8601 in UTC, from the registry's seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """Return `seconds` since 1970 as ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
