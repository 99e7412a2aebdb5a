"""Notifications of changed aliases, from PostgreSQL to every server process.

A notification only says that there is something to read, and it is lost with its connection, so
servers poll as well. PostgreSQL delivers it when the transaction commits. SQLite has none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from sqlalchemy import URL, Connection, func, select

from recalib.errors import UnavailableError

_CHANNEL = "recalib_aliases"
#: How often an idle connection is tested.
_TEST_SECONDS = 60.0


def notify(connection: Connection) -> None:
    """Notify all listeners when the transaction commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(_CHANNEL, "")))


async def listen(url: URL) -> AsyncGenerator[None, None]:
    """Yield at every notification, and once when the connection is open; SQLite never yields.

    Parameters
    ----------
    url: of an engine. A connection of its pool would be closed when it is idle.

    Raises
    ------
    UnavailableError: the connection cannot be opened, or breaks.
    """
    if url.get_backend_name() == "sqlite":
        return
    import psycopg

    conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            await connection.execute(f"LISTEN {_CHANNEL}")
            yield
            while True:
                async for _ in connection.notifies(timeout=_TEST_SECONDS):
                    yield
                await connection.execute("SELECT 1")
    except psycopg.Error as error:
        raise UnavailableError(f"notifications of promotions have ended: {error}") from error
