"""Upgrade a database's schema, safely from several processes at once.

Alembic is imported only when there is a migration to run: most starts need none
(`python -X importtime` shows what the import costs).
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
from recalib.registry.engine import autocommit, connect_to, reading, writing
from recalib.registry.tables import METADATA

if TYPE_CHECKING:
    from alembic.config import Config

_SCRIPTS = Path(__file__).parent / "migrations"
#: Alembic's table with the revision of the database.
_VERSION = table("alembic_version", column("version_num"))
#: Revisions of development versions, which 0031 replaces (docs/decisions/0005-one-migration.md),
#: and the last commits that can upgrade them: to 0009, to 0023, and to 0031.
_DEVELOPMENT = {
    **{f"{number:04}": ("0009", "231a814") for number in range(1, 9)},
    **{f"{number:04}": ("0023", "0374d18") for number in range(9, 23)},
    **{f"{number:04}": ("0031", "7ac291e") for number in range(23, 31)},
}
#: The key of the advisory lock: "recalib" in ASCII, which no other program is likely to use.
_LOCK = 0x7265_6361_6C69_62
_WAL_SECONDS = 30.0
# Alembic's `op` and `context` are globals of the process.
_alembic_lock = threading.Lock()


def upgrade(engine: Engine) -> None:
    """Upgrade the schema to `head()`; do nothing if it is up to date.

    Raises
    ------
    UnavailableError: the schema is a newer version's, or a development version's.
    """
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "").absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # SQLite's own error, a moment later, names the reason
            # The file holds the signing keys. SQLite gives its log the same mode.
            path.touch(mode=0o600)
        _use_wal(engine)
    with reading(engine).connect() as connection:
        revision = current(connection)
    if revision == head():
        return
    reject_development_schema(revision)
    _run(engine, _upgrade)


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Downgrade the schema to `revision`; data that it has no place for is lost."""
    from alembic import command

    _run(engine, lambda config: command.downgrade(config, revision))


def head() -> str:
    """Return the revision that this version of the code needs."""
    return _revisions()[-1]


def is_known(revision: str) -> bool:
    """Return whether this version of the code can upgrade a schema at `revision`."""
    return revision in _revisions()


def development_advice(revision: str | None) -> str:
    """Return what to do with a schema that only development versions had, otherwise ""."""
    if revision not in _DEVELOPMENT:
        return ""
    target, commit = _DEVELOPMENT[revision]
    return (
        f"only development versions before 0.1.0 had schema {revision}: upgrade it to {target} "
        f"with commit {commit} of Recalib first (`recalib prepare` for a database, `recalib "
        "restore` for a backup)"
    )


def reject_development_schema(revision: str | None) -> None:
    """Raise `UnavailableError` if only development versions had `revision`."""
    if advice := development_advice(revision):
        raise UnavailableError(f"the database is too old; {advice}")


def current(connection: Connection) -> str | None:
    """Return the revision of the database, None if it has no schema."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar()


def rebuild(connection: Connection, revision: str) -> None:
    """Drop all tables of Recalib and create those of `revision`, in a write transaction."""
    METADATA.drop_all(connection)
    connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
    _run_step(connection, lambda config: _upgrade(config, revision))


def advance(connection: Connection) -> None:
    """Upgrade the schema to `head()` in a write transaction."""
    _run_step(connection, _upgrade)


def write_revision(database_url: str, message: str) -> None:
    """Write a migration from `head()` to the tables, with the help of an empty database."""
    from alembic import command

    engine = connect_to(database_url)
    upgrade(engine)
    number = f"{int(head()) + 1:04}"
    _run(engine, lambda c: command.revision(c, message, autogenerate=True, rev_id=number))
    engine.dispose()


@cache
def _revisions() -> list[str]:
    """Return all revisions in order. The file names hold them, so Alembic is not imported."""
    return sorted(path.name.partition("_")[0] for path in _SCRIPTS.glob("versions/[0-9]*_*.py"))


def _upgrade(config: Config, revision: str = "head") -> None:
    from alembic import command

    command.upgrade(config, revision)


def _run(engine: Engine, step: Callable[[Config], object]) -> None:
    with writing(engine).begin() as connection:
        _run_step(connection, step)


def _run_step(connection: Connection, step: Callable[[Config], object]) -> None:
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    with _alembic_lock:
        # Servers and workers start together and all migrate. The first does the work; the others
        # wait here and then have nothing to do. In SQLite, BEGIN IMMEDIATE is already such a lock.
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        try:
            step(config)
        except CommandError as error:
            raise UnavailableError(
                f"the database's schema is unknown to this version ({error}); use a newer Recalib"
            ) from error


def _use_wal(engine: Engine) -> None:
    """Switch the file to write-ahead logging, so that a writer does not block readers.

    The switch is stored in the file. It needs exclusive access: when two processes try at once,
    SQLite answers "locked" without waiting, to avoid a deadlock.
    """
    deadline = time.monotonic() + _WAL_SECONDS
    while True:
        try:
            with autocommit(engine).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
