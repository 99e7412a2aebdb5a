"""Migrations: they make what the tables say, both ways, however many run them at once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text

from recalib.access import Limits
from recalib.errors import UnavailableError
from recalib.registry import Capture, Counted, Registry, Watching, migrate
from recalib.registry.engine import connect_to, writing
from recalib.registry.tables import METADATA
from tests.registry.test_labels import prediction


def _differences(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))


def test_revisions_are_alembics() -> None:
    """Read from the names of files, without it."""
    folder = Path(migrate.__file__).parent / "migrations"
    scripts = list(ScriptDirectory(str(folder)).walk_revisions())
    assert scripts[0].revision == migrate.head()
    assert all(migrate.knows(one.revision) for one in scripts)
    assert len(scripts) == len(list(folder.glob("versions/0*.py")))


def test_migrations_make_exactly_the_tables(database_url: str) -> None:
    """Tables, columns, types, keys and indexes: nothing is missing, nothing is left over."""
    engine = connect_to(database_url)
    assert _differences(engine) == []
    engine.dispose()


def test_migrations_can_be_taken_back_and_applied_again(database_url: str) -> None:
    """Down to an empty database and up again."""
    engine = connect_to(database_url)
    migrate.downgrade(engine)
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(engine)
    assert _differences(engine) == []
    engine.dispose()


def test_check_tells_an_empty_database_and_a_newer_one(empty_database_url: str) -> None:
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


def test_using_a_database_that_was_never_migrated_says_so(empty_database_url: str) -> None:
    """A worker that starts before the server waits for it, as for a database that is away."""
    registry = Registry(empty_database_url, "memory://")
    with pytest.raises(UnavailableError, match="models"), registry.reading() as tx:
        tx.models.page(None, 1)
    registry.close()


def test_processes_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    """Servers and workers of one deployment; the later ones wait and find nothing to do."""
    command = (
        "import sys; from recalib.registry import Registry; "
        "registry = Registry(sys.argv[1], 'memory://'); registry.migrate(); registry.check()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", command, empty_database_url]) for _ in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4


def test_threads_of_one_process_migrate_once(empty_database_url: str) -> None:
    """As when several servers are embedded in one program."""

    def start(_: int) -> None:
        registry = Registry(empty_database_url, "memory://")
        registry.migrate()
        registry.check()
        registry.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, range(4)))


def test_a_failed_migration_leaves_nothing_behind(empty_database_url: str) -> None:
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


def test_a_folder_that_does_not_exist_is_made_for_sqlite(tmp_path: object) -> None:
    """The first start of a fresh installation."""
    registry = Registry(f"sqlite:///{tmp_path}/new/folder/recalib.db", "memory://")
    registry.migrate()
    registry.check()
    registry.close()
    engine = create_engine(f"sqlite:///{tmp_path}/new/folder/recalib.db")
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
    engine.dispose()


#: As the first version made one: this one knows columns that older schemas have not.
_A_MODEL = (
    "INSERT INTO models (name, classes, latest_version, created_by, created_at) "
    "VALUES ('resnet', 2, 0, 'anna', 1e9)"
)


def test_labels_come_and_go_without_touching_the_rest(database_url: str) -> None:
    """0002 forward and back, in a database that is in use."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    migrate.downgrade(engine, "0001")
    with registry.transaction() as tx:
        tx.connection.execute(text(_A_MODEL))
    assert "labels" not in inspect(engine).get_table_names()
    registry.migrate()
    with registry.transaction() as tx:
        model = tx.models.get("resnet")
        key = tx.signing_keys.first()
        tx.labels.add(model, [(prediction(1), 1)])
    registry.migrate()
    with registry.reading() as tx:
        assert tx.signing_keys.newest() == key
        assert len(tx.labels.between(model, 1, 0, 1e11)) == 1
    migrate.downgrade(engine, "0001")
    with registry.reading() as tx:
        assert tx.connection.scalar(text("SELECT name FROM models")) == "resnet"
    with pytest.raises(UnavailableError, match="at 0001"):
        registry.check()
    registry.migrate()
    with registry.transaction() as tx:
        assert tx.models.get("resnet") == model
        assert tx.signing_keys.newest() is None
        assert tx.labels.between(model, 1, 0, 1e11) == []
    assert _differences(engine) == []
    engine.dispose()
    registry.close()


def test_traffic_comes_and_goes_without_touching_models_and_labels(database_url: str) -> None:
    """0003 forward and back, in a database that is in use: old rows declare nothing."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    migrate.downgrade(engine, "0002")
    with registry.transaction() as tx:
        tx.connection.execute(text(_A_MODEL))
        tx.connection.execute(
            text(
                "INSERT INTO labels (model_id, version, predicted_at, digest, raw_confidence, "
                "confidence, predicted, label, disputed, labelled_at) "
                "SELECT id, 1, 1e9, :digest, 0.5, 0.5, 1, 1, :no, 1e9 FROM models"
            ),
            {"digest": b"0" * 16, "no": False},
        )
    registry.migrate()
    with registry.transaction() as tx:
        model = tx.models.get("resnet")
        assert model.watching == Watching()
        assert [one.segment for one in tx.labels.between(model, 1, 0, 1e11)] == [0]
        tx.traffic.add([Counted(model.id, 1, 600, 0, 3, 7)])
        tx.models.watch("resnet", Watching(segments=("eu",)))
    migrate.downgrade(engine, "0002")
    assert "traffic" not in inspect(engine).get_table_names()
    with registry.reading() as tx:
        assert tx.connection.scalar(text("SELECT count(*) FROM labels")) == 1
    registry.migrate()
    with registry.reading() as tx:
        assert tx.models.get("resnet").watching == Watching()
        assert tx.traffic.between(model, 1, 0, 1e11) == []
    assert _differences(engine) == []
    engine.dispose()
    registry.close()


def test_monitors_come_and_go_without_touching_traffic(database_url: str) -> None:
    """0004 forward and back: what calibrators have proven is forgotten, and nothing else."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        tx.traffic.add([Counted(model.id, 1, 600, 0, 3, 7)])
        tx.monitors.note(model, 1, "stale", "monitor", "drift", {"ece": 0.2})
    migrate.downgrade(engine, "0003")
    assert not {"monitors", "cohorts", "monitoring_events"} & set(inspect(engine).get_table_names())
    registry.migrate()
    with registry.reading() as tx:
        assert tx.monitors.events(model, 10) == []
        assert len(tx.traffic.between(model, 1, 0, 1e11)) == 1
    assert _differences(engine) == []
    engine.dispose()
    registry.close()


def test_candidates_come_and_go_without_touching_monitors(database_url: str) -> None:
    """0005 forward and back."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        tx.monitors.note(model, 1, "stale", "monitor", "drift")
        tx.captures.add(model.id, Capture("0" * 64, 5, 99, 1e9, 1e9 + 1))
    migrate.downgrade(engine, "0004")
    assert not {"candidates", "captures"} & set(inspect(engine).get_table_names())
    registry.migrate()
    with registry.reading() as tx:
        assert tx.captures.held(model) == (0, 0)
        assert tx.candidates.latest(model) is None
        assert [one.kind for one in tx.monitors.events(model, 9)] == ["stale"]
    assert _differences(engine) == []
    engine.dispose()
    registry.close()


def test_limits_and_audit_come_and_go_without_touching_the_keys(database_url: str) -> None:
    """0008 forward and back: keys from before have no limits of their own, and stay good."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    with registry.transaction() as tx:
        tx.api_keys.create("web", ["predict"], ["m"], limits=Limits(3.5, concurrency=2))
        assert len(tx.audit.page(None, 9)) == 1
    migrate.downgrade(engine, "0006")
    assert "limits" not in {one["name"] for one in inspect(engine).get_columns("api_keys")}
    assert "audit" not in inspect(engine).get_table_names()
    registry.migrate()
    with registry.transaction() as tx:
        (key,) = tx.api_keys.active()
        assert (key.name, key.models, key.limits) == ("web", ("m",), Limits())
        assert tx.audit.page(None, 9) == []
        tx.api_keys.create("new", ["predict"], limits=Limits(rows_per_second=0))
    with registry.reading() as tx:
        assert tx.api_keys.active()[1].limits == Limits(rows_per_second=0)
    assert _differences(engine) == []
    engine.dispose()
    registry.close()


def test_traces_of_jobs_come_and_go(database_url: str) -> None:
    """0009 forward and back: jobs wait as they did, and are claimed."""
    registry = Registry(database_url, "memory://")
    engine = connect_to(database_url)
    with registry.transaction() as tx:
        job = tx.jobs.enqueue("fit", {})
        tx.connection.execute(text("UPDATE jobs SET trace = '00-a-b-01'"))
    migrate.downgrade(engine, "0008")
    assert "trace" not in {one["name"] for one in inspect(engine).get_columns("jobs")}
    registry.migrate()
    with registry.transaction() as tx:
        lease = tx.jobs.claim("w", ["fit"], 60)
        assert lease is not None
        assert (lease.job.id, lease.trace) == (job.id, None)
    assert _differences(engine) == []
    engine.dispose()
    registry.close()
