"""The disk with database and blobs fills up under traffic, and has space again.

A training run without space for its checkpoints: `tests/training/test_training_job.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.end_to_end.programs import Programs, Server, paused, until
from tests.faults.disks import fill, small_disk
from tests.faults.ledger import MODEL, open_ledger
from tests.fitting.conftest import draw
from tests.registry.fixtures import execute
from tests.service.conftest import NPZ, npz

pytestmark = pytest.mark.slow

_CHANGES = {"upload", "promote", "label", "fit"}


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 48 MB for the programs' home, accessible to PostgreSQL's user."""
    folder = Path(tempfile.mkdtemp(prefix="recalib-disk-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with small_disk(folder / "disk", 48) as place:
            yield place
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_on_it(request: pytest.FixtureRequest, disk: Path) -> Iterator[str]:
    """A database whose tables are on the disk.

    PostgreSQL's log is on another disk: without room for its log the server stops, which
    `test_postgresql.py` tests.
    """
    if request.param == "sqlite":
        yield f"sqlite:///{disk / 'recalib.db'}"
        return
    url, name = request.getfixturevalue("postgresql_url"), f"test_{uuid4().hex}"
    place = disk / "tables"
    place.mkdir()
    with psycopg.connect(url) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    os.chown(place, Path(data).stat().st_uid, -1)
    execute(url, f"CREATE TABLESPACE {name} LOCATION '{place}'")
    execute(url, f"CREATE DATABASE {name} TABLESPACE {name}")
    yield url.replace("/postgres?", f"/{name}?")
    execute(url, f"DROP DATABASE {name} WITH (FORCE)", f"DROP TABLESPACE {name}")


def test_temporarily_full_disk(disk: Path, database_on_it: str, programs: Programs) -> None:
    """Serving continues, changes get 503 and leave nothing, and a running fit is published."""
    programs.home = disk / "home"
    programs.temporary = disk / "temporary"
    programs.temporary.mkdir()
    # PostgreSQL fills its open pages first; only labels, which are many, soon need new ones.
    refused = _CHANGES if database_on_it.startswith("sqlite") else {"upload", "label"}
    settings = {"database_url": database_on_it, "lease_seconds": 2, "flush_seconds": 0.2}
    with open_ledger(database_on_it, programs) as ledger:
        with programs.serve("--workers", 2, **settings) as server:
            (worker,) = until(lambda: server.children("worker"), "the embedded worker")
            processes = server.listening(server.url)
            shared = Path(worker.environ()["PROMETHEUS_MULTIPROC_DIR"])
            rows, labels = draw(20_000, 4, 3.0)
            path = f"/v1/models/{MODEL}/datasets/large"
            server.ask("PUT", path, content=npz(rows, labels), headers=NPZ)
            with ledger.traffic(server, fits=True):
                ledger.until_acknowledged()
                job = _running_fit(server, worker)
                with paused(worker):
                    filler = fill(disk)
                    until(lambda: ledger.refused.keys() >= refused or ledger.wrong, "no room")
                # New request counters must find space as well.
                assert "recalib_registry_up 1.0" in server.client.get("/metrics").text
                assert server.client.get("/v1/models/none").status_code == 404
                goal = ledger.predicted + 100
                until(lambda: ledger.predicted >= goal or ledger.wrong, "answers")
                ready = server.ask("GET", "/readyz")
                assert (ready["ready"], ready["registry"]) == (True, "reachable")
                _says_so(server, npz(*draw(9_000, 4, 3.0)))
                filler.unlink()
                ledger.until_acknowledged(2)
            assert "predict" not in ledger.refused
            assert server.listening(server.url) == processes
            assert any(shared.glob("*.db"))
            server.finished(job)
            for fit in ledger.fits:
                server.finished(fit.content)
            ledger.check(server)
            of_jobs = [version["job"] for version in server.versions()]
            assert of_jobs.count(job) == 1
            assert len(of_jobs) == len(set(of_jobs))
            assert [path.name for path in programs.home.glob("blobs/temporary/*")] == []
            assert server.stop() == 0
            assert "Traceback" not in server.log()
        assert not shared.exists()
        ledger.check_predictions()


def _running_fit(server: Server, worker: object) -> str:
    """Request fits until one is seen running, and return it: some finish too early."""
    while True:
        body = {"dataset": "large", "map": "vector", "promote": False}
        job: str = server.ask("POST", f"/v1/models/{MODEL}/calibrators", json=body)["id"]
        answer = until(
            lambda job=job: _state(server, job) not in ("queued", "") and _state(server, job),
            "the fit to begin",
        )
        if answer == "running":
            return job


def _state(server: Server, job: str) -> str:
    return str(server.job(job)["state"])


def _says_so(server: Server, body: bytes) -> None:
    path = f"/v1/models/{MODEL}/datasets/too-much"
    answer = server.client.put(path, content=body, headers=NPZ)
    assert answer.status_code == 503
    assert "no space left" in answer.json()["detail"]
