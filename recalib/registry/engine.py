"""SQLAlchemy engines for SQLite and PostgreSQL.

The differences between the databases are here, in `clock`, in `migrate`, in `notifications` and in
the upserts of `labels` and `traffic`; all other SQL is the same for both.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    TimeoutError,  # SQLAlchemy's own, of its pool
)

from recalib.errors import InputError, UnavailableError
from recalib.registry import array_parameters

_ACCEPTED = "sqlite:////path/to/file.db or postgresql://user:password@host/name"
#: How long SQLite waits for a lock: a migration or a restore, which may wait for another one, and a
#: reader, which waits only in rare cases.
_BUSY_SECONDS, _READER_BUSY_SECONDS = 30.0, 2.0
#: How long a reader of SQLite waits for a connection of the pool.
_POOL_SECONDS = 2.0
_CONNECT_SECONDS = 5
#: How long PostgreSQL keeps an idle transaction open.
_IDLE_SECONDS = 30
#: SQLite's error names for a file that is not a database, and for a damaged file.
_DAMAGED_SQLITE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
#: PostgreSQL's error codes for: a missing table or column (a schema of another version), an idle
#: transaction timeout, a read-only standby, and damaged data.
_UNUSABLE_POSTGRESQL = ("42P01", "42703", "25P03", "25006", "XX001", "XX002")


def connect_to(database_url: str) -> Engine:
    """Return an engine that connects on first use; `InputError` for an unsupported URL."""
    url = _parse(database_url)
    # hide_parameters: error messages must not contain rows. allow_nan: NaN is not JSON;
    # PostgreSQL rejects it, SQLite does not.
    options: dict[str, Any] = {
        "hide_parameters": True,
        "json_serializer": partial(json.dumps, allow_nan=False),
    }
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, pool_timeout=_POOL_SECONDS, **options)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    url = url.set(drivername="postgresql+psycopg").update_query_dict(
        {"connect_timeout": str(_CONNECT_SECONDS), "application_name": "recalib", **url.query}
    )
    # pre_ping: after a restart of the database, dead connections of the pool are replaced before
    # they are used.
    engine = create_engine(url, pool_pre_ping=True, **options)
    event.listen(engine, "connect", _configure_postgresql)
    return engine


def remote_tls_mode(database_url: str) -> str | None:
    """Return libpq's `sslmode` for PostgreSQL on another machine, None for other databases."""
    url = _parse(database_url)
    if url.get_backend_name() == "sqlite":
        return None
    # libpq's order: the query of the URL, its host, the environment, a Unix socket.
    hosts = url.query.get("host") or url.host or os.environ.get("PGHOST", "")
    names = [hosts] if isinstance(hosts, str) else list(hosts)
    if all(_is_local(name) for text in names for name in text.split(",")):
        return None
    mode = url.query.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    return mode if isinstance(mode, str) else mode[-1]


def _is_local(host: str) -> bool:
    """Return whether a host is a Unix socket or a loopback address."""
    if not host or host.startswith(("/", "@", "127.")) or host in ("::1", "[::1]"):
        return True
    return host.partition(":")[0] == "localhost"


def writing(engine: Engine, busy_seconds: float = _BUSY_SECONDS) -> Engine:
    """Return `engine` for write transactions; it shares the connections.

    Parameters
    ----------
    busy_seconds: how long SQLite waits for another writer.
    """
    return engine.execution_options(recalib_use="writing", recalib_busy_seconds=busy_seconds)


def reading(engine: Engine) -> Engine:
    """Return `engine` for read-only transactions with one snapshot."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def autocommit(engine: Engine) -> Engine:
    """Return SQLite's `engine` for statements that must run outside a transaction."""
    return engine.execution_options(recalib_use="autocommit", recalib_busy_seconds=_BUSY_SECONDS)


def in_use(engine: Engine) -> bool:
    """Return whether another process uses the database; all connections must be in the pool."""
    if engine.dialect.name == "sqlite":
        return _sqlite_in_use(engine)
    with engine.connect() as connection:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'recalib' AND pid <> pg_backend_pid()"
        )
        return bool(connection.exec_driver_sql(query).scalar_one())


def _sqlite_in_use(engine: Engine) -> bool:
    """Return whether another connection has the file open, even an idle connection.

    Switching off write-ahead logging needs exclusive access; SQLite refuses it while another
    connection is open.
    """
    engine.dispose()
    with autocommit(engine).connect() as connection:
        try:
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
        except OperationalError as error:
            if "locked" in str(error):
                return True
            raise
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    return False


def sqlite_damage(engine: Engine) -> str:
    """Return what is malformed in a SQLite file, empty if nothing is; it reads the whole file."""
    with engine.connect() as connection:
        try:
            row = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
        except DBAPIError as error:
            if damage := damage_of(error):
                return damage
            raise
    return "" if row == "ok" else row.partition("\n")[0]


def damage_of(error: BaseException | None) -> str:
    """Return the message of an error of SQLite that says that its file is damaged, or nothing."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    # Errors of the module itself, such as a closed connection, have no name.
    name = getattr(cause, "sqlite_errorname", "")
    return str(cause) if name.startswith(_DAMAGED_SQLITE) else ""


@contextmanager
def database_errors(engine: Engine) -> Iterator[None]:
    """Turn all errors that mean "the database cannot be used" into `UnavailableError`."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise _unavailable(engine, _first_line(error)) from error
    except TimeoutError as error:
        raise _unavailable(engine, "every connection is in use") from error
    except DBAPIError as error:
        if _is_unusable(error):
            raise _unavailable(engine, _first_line(error)) from error
        raise


def _parse(database_url: str) -> URL:
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        # The URL may contain a password, so the message does not repeat it.
        raise InputError(
            "database_url", found="text that is not a URL", accepted=_ACCEPTED
        ) from None
    if url.drivername == "postgres":
        return url.set(drivername="postgresql")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise InputError("database_url", found=url.drivername, accepted=_ACCEPTED)
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        # Each connection would have a separate database.
        raise InputError("database_url", found="SQLite in memory", accepted=_ACCEPTED)
    return url


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # None: sqlite3 starts no transactions; `_begin_sqlite` starts them.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL syncs the log at every commit. NORMAL is as safe if the process crashes, but a power cut
    # could undo a promotion that was already confirmed. Commits are rare here.
    connection.execute("PRAGMA synchronous = FULL")


def _configure_postgresql(connection: Any, _record: Any) -> None:
    array_parameters.register(connection)
    # A worker that is paused while it publishes must not keep its locks: all other publishers
    # would wait for it.
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE takes the write lock before the first read. A later upgrade of a read lock fails
    # without waiting if another transaction has written in between.
    options = connection.get_execution_options()
    use = options.get("recalib_use", "reading")
    busy_seconds = options.get("recalib_busy_seconds", _READER_BUSY_SECONDS)
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
    connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if use == 'reading' else 'OFF'}")
    if use != "autocommit":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if use == "writing" else "BEGIN")


def _unavailable(engine: Engine, reason: str) -> UnavailableError:
    where = engine.url.set(query={}).render_as_string(hide_password=True)
    return UnavailableError(f"the database {where} cannot be used: {reason}")


def _is_unusable(error: DBAPIError) -> bool:
    return bool(damage_of(error)) or getattr(error.orig, "sqlstate", None) in _UNUSABLE_POSTGRESQL


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
