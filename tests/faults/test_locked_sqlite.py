"""Another process holds the lock of the SQLite database, and releases it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest

from service.access.load_shedding import OVERLOAD
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server
from tests.faults.ledger import MODEL, open_ledger
from tests.fitting.conftest import draw
from tests.service.stubs import Rpc, refused

pytestmark = pytest.mark.slow

_MODELS = "/v1/models"
#: On a quiet machine, five.
_MAX_SECONDS = 15.0
#: Changes at the same time: more than the server has threads.
_CHANGES = 100


def test_locked_database_is_unavailable_within_five_seconds(programs: Programs) -> None:
    """Changes get 503 or UNAVAILABLE; reads, and calibrators that are loaded, go on."""
    database = programs.home / "recalib.db"
    rows = draw(10, 4, 3.0)[0].astype(np.float32)
    with (
        open_ledger(f"sqlite:///{database}", programs),
        programs.serve(flush_seconds=0.1, lease_seconds=5) as server,
    ):
        expected = server.calibrate(rows, MODEL)["probabilities"]
        other = sqlite3.connect(database, isolation_level=None, timeout=PATIENCE_SECONDS)
        other.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(_CHANGES) as threads:
            changes = [threads.submit(_change, server, number) for number in range(_CHANGES)]
            answers = 0
            while not (all(change.done() for change in changes) and answers):
                with _busy_machine():
                    assert server.calibrate(rows, MODEL)["probabilities"] == expected
                    assert server.ask("GET", _MODELS)["items"]
                    answers += 1
        details = []
        for change in changes:
            answer, seconds = change.result()
            assert answer.status_code == 503
            details.append(answer.json()["detail"])
            assert answer.headers["retry-after"]
            assert seconds < _MAX_SECONDS
        assert all("locked" in detail or detail == OVERLOAD for detail in details)
        assert any("locked" in detail for detail in details)
        _check_grpc(server, rows)
        other.execute("ROLLBACK")
        other.close()
        assert _change(server, 0)[0].status_code == 201
        server.finished(server.ask_fit(MODEL))
        assert len(server.versions(MODEL)) == 3
        assert server.stop() == 0
        assert "Traceback" not in server.log()


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    """Accept a refusal because of the load: the event loop of the server runs late."""
    try:
        yield
    except AssertionError as error:
        if OVERLOAD not in str(error):
            raise
        time.sleep(0.1)


def _change(server: Server, number: int) -> tuple[httpx2.Response, float]:
    """Create a model; returns the response and its seconds."""
    with httpx2.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        begun = time.monotonic()
        answer = client.post(_MODELS, json={"name": f"model-{number}", "classes": 3})
        return answer, time.monotonic() - begun


def _check_grpc(server: Server, rows: Any) -> None:
    unavailable = grpc.StatusCode.UNAVAILABLE
    with Rpc(server.grpc_url) as rpc:
        request = pb.CreateModelRequest(name="other", classes=3)
        error = refused(unavailable, rpc.models.create_model, request, timeout=_MAX_SECONDS)
        assert "locked" in error.details()
        assert rpc.models.list_models(pb.ListModelsRequest()).items
    assert server.calibrate(rows, MODEL)["probabilities"]
