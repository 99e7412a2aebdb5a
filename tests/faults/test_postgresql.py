"""PostgreSQL is stopped or killed under traffic, and started again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest

from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server, until
from tests.faults.ledger import Ledger, open_ledger
from tests.fitting.conftest import draw
from tests.registry.fixtures import start_postgresql
from tests.service.conftest import NPZ, npz

pytestmark = pytest.mark.slow

_postgresql = contextlib.contextmanager(start_postgresql)
_CHANGES = {"upload", "promote", "label", "fit"}


def test_database_outage_and_recovery(programs: Programs) -> None:
    """Loaded calibrators serve, changes get 503, and recovery is automatic."""
    rows, labels = draw(400, 4, 3.0)
    with _postgresql() as postgresql, open_ledger(postgresql.get_uri(), programs) as ledger:
        url = postgresql.get_uri()
        settings: dict[str, object] = {"refresh_seconds": 0.2, "flush_seconds": 0.2}
        with programs.serve(database_url=url, lease_seconds=5, **settings) as server:
            (worker,) = until(lambda: server.children("worker"), "the embedded worker")
            with ledger.traffic(server, fits=True):
                for leave in (_stop, _kill):
                    ledger.until_acknowledged(2)
                    ledger.refused.clear()
                    leave(postgresql)
                    until(_says(server, "unreachable"), "the outage")
                    assert server.ask("GET", "/readyz")["ready"] is True
                    assert server.ask("GET", "/livez") == {"live": True}
                    until(lambda: ledger.refused.keys() >= _CHANGES, "changes to be refused")
                    _check_serving(server, ledger, rows)
                    _check_refusals(server, npz(rows, labels))
                    postgresql.ensure_postgres_running()
                    until(_says(server, "reachable"), "its end")
                ledger.until_acknowledged(2)
            assert "predict" not in ledger.refused
            ledger.check(server)
            for fit in ledger.fits:
                server.finished(fit.content)
            of_jobs = [version["job"] for version in server.versions()]
            assert sorted(of_jobs[2:]) == sorted(fit.content for fit in ledger.fits)
            assert "recalib_registry_up 1.0" in server.client.get("/metrics").text
            assert server.children("worker") == [worker]
            assert server.stop() == 0
            assert "Traceback" not in server.log()
        ledger.check_predictions()


def test_server_start_without_database_fails(programs: Programs) -> None:
    """The server exits with one line and status 2; a worker waits and logs that."""
    url = "postgresql://me:secret-word@127.0.0.1:1/none"
    worker = programs.worker(database_url=url)
    server = programs.start("serve", "--port", 0, database_url=url)
    assert server.wait() == 2
    log = programs.log_of(server)
    assert log.startswith("error: the database postgresql")
    assert log.count("\n") == 1
    until(lambda: "Waiting: the database" in programs.log_of(worker), "the worker to wait")
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait() == 0
    for process in (server, worker):
        assert "secret-word" not in programs.log_of(process)
        assert "Traceback" not in programs.log_of(process)


def _stop(postgresql: Any) -> None:
    postgresql.stop()


def _kill(postgresql: Any) -> None:
    """kill -9 of the postmaster; its children end."""
    postmaster = psutil.Process(postgresql.get_pid())
    children = postmaster.children(recursive=True)
    postmaster.kill()
    _, alive = psutil.wait_procs([postmaster, *children], PATIENCE_SECONDS)
    assert alive == []


def _says(server: Server, registry: str) -> Callable[[], bool]:
    return lambda: server.ask("GET", "/readyz")["registry"] == registry


def _check_serving(server: Server, ledger: Ledger, rows: Any) -> None:
    """Check that loaded calibrators serve, with prediction ids."""
    goal = ledger.predicted + 100
    until(lambda: ledger.predicted >= goal or ledger.wrong, "answers")
    assert None not in server.calibrate(rows[:10])["prediction_ids"]
    ledger.predicted += 10
    assert "recalib_registry_up 0.0" in server.client.get("/metrics").text


def _check_refusals(server: Server, upload: bytes) -> None:
    """Check that other requests get 503 with Retry-After."""
    v1 = "/v1/models"
    answers: list[httpx2.Response] = [
        server.client.post(v1, json={"name": "other", "classes": 3}),
        server.client.put(f"{v1}/digits/datasets/more", content=upload, headers=NPZ),
        server.client.get(v1),
        server.client.post(
            f"{v1}/digits/calibrate?calibrator=99", json={"logits": np.zeros((1, 4)).tolist()}
        ),
    ]
    for answer in answers:
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
