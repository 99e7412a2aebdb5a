"""The database's clock, the only clock for leases and timestamps.

The clocks of workers and servers differ; the database has one. `now()` is seconds since 1970-01-01
UTC as a double, with a resolution of 0.1 ms in both databases.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Double, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The time at the start of the statement."""

    type = Double()
    inherit_cache = True


def read_clock(connection: Connection) -> float:
    """Return the time of the database, in seconds since 1970-01-01 UTC."""
    return float(connection.execute(select(now())).scalar_one())


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: Any, **options: Any) -> str:
    # 2440587.5 is the Julian day of the epoch. unixepoch('subsec') needs SQLite 3.42.
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: Any, **options: Any) -> str:
    # Not now(): it is the start of the transaction, which may have waited for a lock since.
    # Not clock_timestamp(): it is volatile, so comparisons with it cannot use an index.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) AS DOUBLE PRECISION)"
