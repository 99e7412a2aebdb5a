"""Bringing a database's schema up to date, however many processes try at once.

Alembic is imported where there is something to do, which there is at few starts (`python -X
importtime` says what it draws in).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, column, func, inspect, select, table, text
from sqlalchemy.exc import OperationalError

from recalib.errors import UnavailableError
from recalib.registry.engine import reading, unbegun, writing
from recalib.registry.tables import METADATA

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["advance", "current", "downgrade", "head", "knows", "rebuild", "upgrade"]

_SCRIPTS = Path(__file__).parent / "migrations"
#: Where Alembic keeps what a database is at.
_VERSION = table("alembic_version", column("version_num"))
#: "recalib" in ASCII: any number that no other program locks in the same database.
_LOCK = 0x7265_6361_6C69_62
_WAL_SECONDS = 30.0
# Alembic's `op` and `context` are globals of the process.
_one_at_a_time = threading.Lock()


def upgrade(engine: Engine) -> None:
    """Bring the schema to this version's; nothing happens where it is there already."""
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "").absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # SQLite says better why it cannot
            path.touch(mode=0o600)  # it holds the keys that sign; its log gets the same mode
        _use_wal(engine)
    with reading(engine).connect() as connection:
        if current(connection) == head():
            return
    _run(engine, _upgrade)


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Take the schema back to `revision`; what older versions do not know is lost."""
    from alembic import command

    _run(engine, lambda config: command.downgrade(config, revision))


def head() -> str:
    """Return the revision that this version of the code needs."""
    return _revisions()[-1]


def knows(revision: str) -> bool:
    """Return whether this version of the code can bring a schema at `revision` up to date."""
    return revision in _revisions()


def current(connection: Connection) -> str | None:
    """Return the revision that the database is at, None for an empty one."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar()


def rebuild(connection: Connection, revision: str) -> None:
    """Drop all tables of ours and make those of `revision`, empty, in a transaction that writes."""
    METADATA.drop_all(connection)
    connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
    _step(connection, lambda config: _upgrade(config, revision))


def advance(connection: Connection) -> None:
    """Bring the schema to this version's in a transaction that writes."""
    _step(connection, _upgrade)


@cache
def _revisions() -> list[str]:
    """Return all revisions, in their order, by the files that have them."""
    return sorted(one.name.partition("_")[0] for one in _SCRIPTS.glob("versions/[0-9]*_*.py"))


def _upgrade(config: Config, revision: str = "head") -> None:
    from alembic import command

    command.upgrade(config, revision)


def _run(engine: Engine, step: Callable[[Config], None]) -> None:
    with writing(engine).begin() as connection:
        _step(connection, step)


def _step(connection: Connection, step: Callable[[Config], None]) -> None:
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    with _one_at_a_time:
        # Servers and workers start together and all migrate. The first one in does it, the others
        # wait here and then find nothing to do. SQLite's BEGIN IMMEDIATE is such a lock already.
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        try:
            step(config)
        except CommandError as error:
            raise UnavailableError(
                f"the database is at a schema that this version does not know ({error}); "
                "it needs a newer Recalib"
            ) from error


def _use_wal(engine: Engine) -> None:
    """Let readers of the file go on while another writes; the file remembers it for good.

    The switch needs the file to itself, and SQLite answers "locked" without waiting when two
    processes try it at once, to keep them from waiting for each other.
    """
    deadline = time.monotonic() + _WAL_SECONDS
    while True:
        try:
            with unbegun(engine).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
