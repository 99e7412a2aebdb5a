"""A later version migrates the schema under a running server, and back."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from recalib.registry import Registry, migrate
from tests.end_to_end.programs import Programs, until
from tests.faults.ledger import open_ledger

pytestmark = pytest.mark.slow

#: Changes that the next version may make to tables of this version, and statements that undo them.
_FORWARD = [
    "ALTER TABLE datasets ADD COLUMN note TEXT",
    "ALTER TABLE labels ADD COLUMN weight FLOAT NOT NULL DEFAULT 1",
    "CREATE TABLE notes (id INTEGER PRIMARY KEY)",
    "CREATE INDEX datasets_by_note ON datasets (note)",
    "UPDATE alembic_version SET version_num = '9999'",
]
_BACK = [
    "DROP INDEX datasets_by_note",
    "DROP TABLE notes",
    "ALTER TABLE labels DROP COLUMN weight",
    "ALTER TABLE datasets DROP COLUMN note",
    "UPDATE alembic_version SET version_num = :head",
]
#: A schema that is too old, as after the restore of a wrong database.
_OLD = ["UPDATE alembic_version SET version_num = '0008'"]


def test_later_schema_version_beside_this_version(
    programs: Programs, empty_database_url: str
) -> None:
    """A running server continues without loss; a new program refuses to start, in one line.

    A schema that is too old makes the registry unreachable until it is upgraded.
    """
    settings = {"database_url": empty_database_url, "refresh_seconds": 0.1}
    with (
        open_ledger(empty_database_url, programs) as ledger,
        programs.serve("--job-workers", 0, **settings) as server,
    ):
        with ledger.traffic(server):
            ledger.until_acknowledged()
            _run(ledger.registry, _FORWARD)
            until(lambda: server.ask("GET", "/readyz")["detail"], "the server to see it")
            ready = server.ask("GET", "/readyz")
            assert (ready["ready"], ready["registry"]) == (True, "reachable")
            assert ready["detail"] == "the database's schema is at 9999, of a newer Recalib"
            ledger.until_acknowledged(2)
            assert ledger.refused == {}
            if empty_database_url.startswith("sqlite"):  # the same for both
                _refuses_to_start(programs, empty_database_url)
            _run(ledger.registry, _BACK)
            ledger.until_acknowledged(2)
        ledger.check(server)

        with ledger.traffic(server):
            _run(ledger.registry, _OLD)
            until(lambda: server.ask("GET", "/readyz")["registry"] == "unreachable", "its notice")
            assert "development versions" in server.ask("GET", "/readyz")["detail"]
            _run(ledger.registry, _BACK[-1:])
            until(lambda: server.ask("GET", "/readyz")["registry"] == "reachable", "its end")
            ledger.until_acknowledged(2)
        ledger.check(server)
        assert "predict" not in ledger.refused
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def _run(registry: Registry, statements: list[str]) -> None:
    with registry.transaction() as tx:
        for statement in statements:
            more = {"head": migrate.head()} if ":head" in statement else {}
            tx.connection.execute(text(statement), more)


def _refuses_to_start(programs: Programs, database_url: str) -> None:
    for command in (["serve", "--port", 0], ["worker"]):
        process = programs.start(*command, database_url=database_url)
        assert process.wait() == 2
        log = programs.log_of(process)
        assert log.startswith("error: the database")
        assert log.count("\n") == 1
        assert "9999" in log
        assert "newer Recalib" in log
