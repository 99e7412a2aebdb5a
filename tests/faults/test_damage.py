"""Damaged stored data is detected and reported, and nothing else is lost."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from recalib.errors import UnavailableError
from recalib.registry import Registry, tables
from tests.end_to_end.programs import Programs, Server, until
from tests.faults.ledger import BATCH, MODEL, Ledger, open_ledger, publish_two
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz
from tests.training.test_refit_job import CAPTURING, serve
from tests.training.watched import a_champion
from training.logit_samples import read_labelled_sample
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.slow

_PATH = f"/v1/models/{MODEL}"
_ROWS = draw(100, 4, 3.0, seed=5)[0]


@pytest.mark.sqlite_only
def test_damaged_parameters_and_blobs(programs: Programs, empty_database_url: str) -> None:
    """Data with a flipped bit is neither served nor used to fit, and can be replaced."""
    with open_ledger(empty_database_url, programs) as ledger:
        registry = ledger.registry
        settings = {"database_url": empty_database_url, "refresh_seconds": 0.1}
        with programs.serve("--job-workers", 0, **settings) as server:
            before = server.calibrate(_ROWS, ids=0)
            for version in (1, 2):
                _flip_a_bit_of_parameters(registry, version)
            # The loaded champion still serves; the other version is neither promoted nor served.
            answer = server.client.put(f"{_PATH}/aliases/champion", json={"version": 2})
            _check_damage_reported(answer, "checksum")
            answer = server.client.post(
                f"{_PATH}/calibrate?calibrator=2", json={"logits": [[0, 1, 2, 3]]}
            )
            _check_damage_reported(answer, "checksum")
            assert server.calibrate(_ROWS, ids=0) == before
            with registry.reading() as tx:
                assert tx.aliases.get(tx.models.get(MODEL), "champion").version == 1

            logits, labels = draw(300, 4, 3.0)
            body = npz(logits, labels)
            blob = _flip_a_bit_of_the_blob(programs)
            failed = _fitted(server, registry)
            assert failed["state"] == "failed"
            assert f"blob {blob.name} holds other bytes than its name promises" in failed["error"]
            answer = server.client.put(f"{_PATH}/datasets/validation", content=body, headers=NPZ)
            assert answer.status_code == 200
            assert blob.read_bytes() == body
            # A damaged champion does not prevent a fit.
            done = _fitted(server, registry)
            assert done["state"] == "succeeded", done
            assert done["result"]["promoted"] is True
            until(lambda: server.calibrate(_ROWS)["calibrator"]["version"] == 3, "the new one")
            assert server.stop() == 0
            assert "Traceback" not in server.log()


def _flip_a_bit_of_parameters(registry: Registry, version: int) -> None:
    table = tables.calibrators
    with registry.transaction() as tx:
        data = bytearray(tx.calibrators.parameters(tx.models.get(MODEL), version))
        data[-3] ^= 4  # still a number, and another
        tx.connection.execute(
            update(table).where(table.c.version == version).values(parameters=bytes(data))
        )


def _flip_a_bit_of_the_blob(programs: Programs) -> Path:
    (blob,) = [path for path in programs.home.glob("blobs/??/*") if path.is_file()]
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    return blob


def _fitted(server: Server, registry: Registry) -> dict[str, Any]:
    job = server.ask("POST", f"{_PATH}/calibrators", json={"dataset": "validation"})["id"]
    worker = Worker(registry, HANDLERS, name="test")
    while worker.work_once(threading.Event()):
        pass
    return server.job(job)


def _check_damage_reported(answer: Any, word: str) -> None:
    assert answer.status_code == 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["title"] == "Stored data is damaged"
    assert word in answer.json()["detail"]
    assert "Traceback" not in answer.text


def test_damaged_captured_logits_are_skipped(registry: Registry) -> None:
    """A refit uses the remaining samples."""
    model = a_champion(registry, CAPTURING)
    for ago in (4_000, 2_400):
        serve(registry, model, ago=ago, temperature=3.0, rows=200, seed=ago)
    with registry.reading() as tx:
        first, _ = tx.captures.between(model, 0, 1e11)
    assert len(read_labelled_sample(registry, model, 1, 0, 1e11)) == 400
    blob = Path(registry.blobs.path(first.digest))
    data = bytearray(blob.read_bytes())
    data[len(data) // 3] ^= 1
    blob.write_bytes(data)
    assert len(read_labelled_sample(registry, model, 1, 0, 1e11)) == 200
    blob.unlink()
    assert len(read_labelled_sample(registry, model, 1, 0, 1e11)) == 200


def test_torn_or_truncated_sqlite_log(programs: Programs, tmp_path: Path) -> None:
    """A tear after the last commit loses nothing; earlier ones keep all earlier commits."""
    database = programs.home / "recalib.db"
    with open_ledger(f"sqlite:///{database}", programs) as ledger:
        with programs.serve("--job-workers", 0) as server, ledger.traffic(server):
            ledger.until_acknowledged(5)
            server.kill()
        log = Path(f"{database}-wal")
        # Copy now: closing the last connection removes the log.
        files = {path: path.read_bytes() for path in (database, log)}

    for share in (0.9, 0.5, 0.1, 0.0):
        folder = tmp_path / f"cut-{share}"
        folder.mkdir()
        (folder / database.name).write_bytes(files[database])
        (folder / log.name).write_bytes(files[log][: int(share * len(files[log]))])
        _check_prefix(Registry(f"sqlite:///{folder / database.name}", "memory://"), ledger)

    for path, content in files.items():
        path.write_bytes(content)
    Path(f"{database}-shm").unlink(missing_ok=True)
    with log.open("ab") as file:  # half of a commit that never was
        file.write(np.random.default_rng(0).bytes(5_000))
    with programs.serve("--job-workers", 0) as server:
        ledger.registry = Registry(f"sqlite:///{database}", (programs.home / "blobs").as_uri())
        ledger.check(server)
        assert server.stop() == 0
        ledger.registry.close()


def _check_prefix(registry: Registry, ledger: Ledger) -> None:
    """Check that the database holds all transactions up to some moment, and no later one."""
    registry.migrate()
    with registry.reading() as tx:
        assert tx.connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert tx.connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        model = tx.models.page(None, 9)
        if not model:
            registry.close()
            return
        history = tx.aliases.history(model[0], "champion", 100_000)[::-1]
        reasons = [change.reason for change in history if change.reason.startswith("reason")]
        requested = [promotion.key for promotion in ledger.promotions]
        assert reasons == requested[: len(reasons)]
        if history:
            assert tx.aliases.get(model[0], "champion").version == history[-1].to_version
        names = [dataset.name for dataset in tx.datasets.page(model[0], None, 10_000)]
        numbers = sorted(int(name[5:]) for name in names if name.startswith("data-"))
        assert numbers == list(range(len(numbers)))
        labelled = tx.connection.exec_driver_sql("SELECT count(*) FROM labels").scalar_one()
        assert labelled % BATCH == 0
    registry.close()


def test_file_that_is_not_a_database_is_refused(programs: Programs) -> None:
    """One line reports it, and the file is not changed."""
    programs.home.mkdir()
    database = programs.home / "recalib.db"
    content = np.random.default_rng(0).bytes(50_000)
    database.write_bytes(content)
    process = programs.start("serve", "--port", 0)
    assert process.wait() == 2
    log = programs.log_of(process)
    assert log.startswith("error: the database")
    assert log.endswith("cannot be used: file is not a database\n")
    assert log.count("\n") == 1
    assert database.read_bytes() == content


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_truncated_sqlite_database_is_reported(registry: Registry, tmp_path: Path) -> None:
    """Reads raise `UnavailableError` wherever they meet the damage."""
    publish_two(registry)
    registry.close()
    half = tmp_path / "half.db"
    shutil.copy(tmp_path / "recalib.db", half)
    with half.open("rb+") as file:
        file.truncate(half.stat().st_size // 2)
    damaged = Registry(f"sqlite:///{half}", "memory://")
    with pytest.raises(UnavailableError, match="malformed"):
        _read_everything(damaged)
    damaged.close()


def _read_everything(registry: Registry) -> None:
    with registry.reading() as tx:
        for table in tables.METADATA.sorted_tables:
            tx.connection.execute(table.select()).all()
