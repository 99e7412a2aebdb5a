"""The database's clock, the only one that leases and timestamps are read from.

Workers and servers on several machines disagree about the time; the database agrees with itself.
`now()` is seconds since 1970-01-01 UTC as a double, good to 0.1 ms in either dialect.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

__all__ = ["now"]


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The time at which the statement began."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: Any, **options: Any) -> str:
    # 2440587.5 is the Julian day of the epoch. unixepoch('subsec') needs SQLite 3.42.
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: Any, **options: Any) -> str:
    # Not now(): that is when the transaction began, which may have waited for a lock since.
    # Not clock_timestamp(): it is volatile, so that comparisons with it could use no index.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) AS DOUBLE PRECISION)"
