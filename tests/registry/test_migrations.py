"""Migrations: the schema equals the tables, and an upgrade keeps all rows."""

from __future__ import annotations

import runpy
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, create_engine, inspect, select, text, update

from recalib.errors import UnavailableError
from recalib.registry import Registry, migrate
from recalib.registry.engine import connect_to, writing
from recalib.registry.purge import purge
from recalib.registry.tables import METADATA
from tests.registry.fixtures import execute
from tests.registry.scenes import all_rows

_MIGRATIONS = Path(migrate.__file__).parent / "migrations"
#: Dumps of databases with rows in every table, made by the steps 0001 to 0031.
_SCHEMAS = Path(__file__).parent / "schemas"


@pytest.fixture
def database_at_0031(empty_database_url: str) -> str:
    """A database that the old steps made, with rows in every table."""
    if empty_database_url.startswith("sqlite"):
        with sqlite3.connect(empty_database_url.removeprefix("sqlite:///")) as connection:
            connection.executescript((_SCHEMAS / "0031_sqlite.sql").read_text())
    else:
        execute(empty_database_url, (_SCHEMAS / "0031_postgresql.sql").read_text())
    return empty_database_url


def _differences(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))


def _dictionaries(engine: Engine) -> dict[str, list[dict[str, object]]]:
    """Return the rows of every table, with the columns that the database has."""
    schema = MetaData()
    schema.reflect(engine)
    with engine.connect() as connection:
        return {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in schema.sorted_tables
            if table.name in METADATA.tables
        }


def test_revisions_equal_those_of_alembic() -> None:
    """`migrate` reads them from the file names, without Alembic."""
    scripts = list(ScriptDirectory(str(_MIGRATIONS)).walk_revisions())
    assert [script.revision for script in reversed(scripts)] == migrate._revisions()
    assert migrate.head() == scripts[0].revision


def test_each_migration_has_the_number_of_its_file() -> None:
    """Alembic drops one of two migrations with the same number, with a warning only."""
    numbers = sorted(path.name[:4] for path in (_MIGRATIONS / "versions").glob("0*.py"))
    known = ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
    assert sorted(script.revision for script in known) == numbers


def test_a_database_at_0031_keeps_its_rows(database_at_0031: str, blob_url: str) -> None:
    """The queries of this version read what an earlier one has written."""
    engine = connect_to(database_at_0031)
    registry = Registry(database_at_0031, blob_url)
    before = _dictionaries(engine)
    assert [name for name, rows in before.items() if not rows] == []
    registry.migrate()
    assert registry.check() == ""
    assert _differences(engine) == []
    after = _dictionaries(engine)
    assert after.keys() - before.keys() == {"adaptations"}
    for name, rows in before.items():
        assert [{key: row[key] for key in rows[0]} for row in after[name]] == rows
    with registry.reading() as tx:
        model = tx.models.get("resnet")
        assert not model.serve_uncalibrated  # its callers may wait for the end of the 409
        remote, described = tx.datasets.page(model, None, 10)
        version = tx.calibrators.get(model, 1)
        assert tx.calibrators.deleted(model) == {2, 3}
    assert (described.description, described.tags, described.uri) == ("of May", ("a", "b"), None)
    assert (remote.description, remote.tags, remote.uri) == ("", (), "s3://bucket/rows")
    assert (version.description, version.tags) == ("the first", ("\N{SNOWMAN}",))
    assert purge(registry, 0.0) == 2  # the data set and the version that were deleted
    with registry.transaction() as tx:
        assert tx.calibrators.deleted(model) == {2, 3}
        assert tx.models.create("new", None, 2, "anna").id == 2
    registry.close()
    engine.dispose()


def test_0031_makes_the_schema_of_the_old_steps(database_at_0031: str) -> None:
    """Tables, columns, types, keys and indexes; in SQLite, which reads rows in order, columns in
    the same order."""
    engine = connect_to(database_at_0031)
    schema = MetaData()
    schema.reflect(engine)
    old = {name: inspect(engine).get_columns(name) for name in schema.tables}
    with writing(engine).begin() as connection:
        schema.drop_all(connection)
        migrate.rebuild(connection, "0031")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema) == []
    for name, columns in old.items():
        names = [column["name"] for column in inspect(engine).get_columns(name)]
        expected = [column["name"] for column in columns]
        assert sorted(names) == sorted(expected)
        assert names == expected or engine.dialect.name == "postgresql"
    engine.dispose()


@pytest.mark.slow
def test_later_migration_keeps_all_rows(
    database_at_0031: str, blob_url: str, request: pytest.FixtureRequest
) -> None:
    """From this version's schema forward, back and forward again."""
    registry = Registry(database_at_0031, blob_url)
    engine = connect_to(database_at_0031)
    registry.migrate()
    here = migrate.head()
    request.getfixturevalue("later_version")
    before = all_rows(registry)
    with pytest.raises(
        UnavailableError, match=f"at {here}, this version of Recalib needs {migrate.head()}"
    ):
        registry.check()
    for _ in range(2):
        registry.migrate()
        assert registry.check() == ""
        assert all_rows(registry) == before
        assert _differences(engine) != []
        migrate.downgrade(engine, here)
        assert all_rows(registry) == before
        assert _differences(engine) == []
    registry.close()
    engine.dispose()


def test_next_migration_is_written_from_the_tables(
    migrations_copy: Path, empty_database_url: str
) -> None:
    """`python -m recalib.registry.migrations MESSAGE`, after a column was added to the tables."""
    here = migrate.head()
    first = migrations_copy / "versions" / "0031_initial.py"
    first.write_text(first.read_text().replace('sa.Column("trace", sa.String(64)),', ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["migrations", "traces of jobs"])
        runpy.run_module("recalib.registry.migrations", run_name="__main__")
    migrate._revisions.cache_clear()
    assert migrate.head() == f"{int(here) + 1:04}"
    engine = connect_to(empty_database_url)
    migrate.upgrade(engine)
    assert _differences(engine) == []
    migrate.downgrade(engine, here)
    assert "trace" not in {column["name"] for column in inspect(engine).get_columns("jobs")}
    engine.dispose()


@pytest.mark.parametrize(
    ("revision", "target"), [("0006", "0009"), ("0022", "0023"), ("0030", "0031")]
)
def test_development_schema_is_refused_with_advice(
    registry: Registry, revision: str, target: str
) -> None:
    """This version cannot upgrade revisions before 0031; the error names the commit that can."""
    with registry.transaction() as tx:
        tx.connection.execute(update(migrate._VERSION).values(version_num=revision))
    before = all_rows(registry)
    advice = f"schema {revision}: upgrade it to {target} with commit"
    for action in (registry.migrate, registry.check):
        with pytest.raises(UnavailableError, match=advice):
            action()
    assert all_rows(registry) == before


def test_migrated_schema_equals_the_tables(database_url: str) -> None:
    """Tables, columns, types, keys and indexes: nothing is missing, nothing is left over."""
    engine = connect_to(database_url)
    assert _differences(engine) == []
    engine.dispose()


def test_migrations_can_be_downgraded_and_reapplied(database_url: str) -> None:
    """Down to an empty database and up again."""
    engine = connect_to(database_url)
    migrate.downgrade(engine)
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(engine)
    assert _differences(engine) == []
    engine.dispose()


def test_check_reports_empty_and_newer_databases(empty_database_url: str) -> None:
    """Migrating helps the first only; a program that runs already goes on with the second."""
    registry = Registry(empty_database_url, "memory://")
    with pytest.raises(UnavailableError, match="at nothing"):
        registry.check()
    registry.migrate()
    registry.migrate()
    assert registry.check() == ""
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert registry.check() == "the database's schema is at 9999, of a newer Recalib"
    with pytest.raises(UnavailableError, match="newer Recalib"):
        registry.migrate()
    registry.close()


def test_unmigrated_database_is_reported(empty_database_url: str) -> None:
    """A worker that starts before the server waits for it, as for a database that is away."""
    registry = Registry(empty_database_url, "memory://")
    with pytest.raises(UnavailableError, match="models"), registry.reading() as tx:
        tx.models.page(None, 1)
    registry.close()


@pytest.mark.slow
def test_concurrent_processes_migrate_once(empty_database_url: str) -> None:
    """Servers and workers of one deployment; the later ones wait and find nothing to do."""
    command = (
        "import sys; from recalib.registry import Registry; "
        "registry = Registry(sys.argv[1], 'memory://'); registry.migrate(); registry.check()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", command, empty_database_url]) for _ in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4


def test_concurrent_threads_migrate_once(empty_database_url: str) -> None:
    """As when several servers are embedded in one program."""

    def start(_: int) -> None:
        registry = Registry(empty_database_url, "memory://")
        registry.migrate()
        registry.check()
        registry.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, range(4)))


def test_failed_migration_changes_nothing(empty_database_url: str) -> None:
    """Schema changes roll back with their transaction, in both databases."""
    engine = connect_to(empty_database_url)
    with writing(engine).begin() as connection:
        # In the way of the migration's last table.
        connection.execute(text("CREATE TABLE aliases (id INTEGER)"))
    registry = Registry(empty_database_url, "memory://")
    with pytest.raises(Exception, match="aliases"):
        registry.migrate()
    assert inspect(engine).get_table_names() == ["aliases"]
    registry.close()
    engine.dispose()


def test_missing_folder_is_created_for_sqlite(tmp_path: object) -> None:
    """The first start of a fresh installation."""
    registry = Registry(f"sqlite:///{tmp_path}/new/folder/recalib.db", "memory://")
    registry.migrate()
    registry.check()
    registry.close()
    engine = create_engine(f"sqlite:///{tmp_path}/new/folder/recalib.db")
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
    engine.dispose()
