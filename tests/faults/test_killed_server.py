"""kill -9 of the server at chosen moments under traffic: nothing lost, nothing partial."""

from __future__ import annotations

import socket
from functools import partial
from urllib.parse import urlsplit

import pytest

from recalib.registry import Registry
from tests.end_to_end.programs import (
    Programs,
    half_an_upload,
    recalib_command,
    received,
    until,
)
from tests.faults.dying import dying_command
from tests.faults.ledger import MODEL, open_ledger
from tests.fitting.conftest import draw
from tests.service.conftest import npz

pytestmark = pytest.mark.slow

#: Moments of the kills: inside an upload's transaction (its blob exists already), between the two
#: statements of a promotion, inside a batch of labels, and after the commit of a flush. Some
#: operations of each kind succeed before.
_DEATHS = [
    ("inside", 3, "INSERT INTO datasets"),
    ("inside", 4, "UPDATE aliases"),
    ("inside", 3, "INSERT INTO labels"),
    ("after", 5, "INSERT INTO traffic"),
]


def test_killed_server_leaves_no_orphans(programs: Programs) -> None:
    """Server processes and workers end with the server, and its port is free."""
    with programs.serve("--workers", 2) as server:
        until(lambda: server.children("worker"), "the embedded worker")
        server.kill()
        until(lambda: not programs.alive(), "the children to end")
        place = urlsplit(server.url)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((place.hostname, place.port))


def test_repeatedly_killed_server_loses_nothing(
    programs: Programs, empty_database_url: str
) -> None:
    """Each run ends in another operation; the last one must keep all guarantees."""
    with open_ledger(empty_database_url, programs) as ledger:
        settings = {"database_url": empty_database_url, "flush_seconds": 0.1}
        port: int | None = 0
        for death in _DEATHS:
            programs.command = partial(dying_command, *death)
            with (
                programs.serve("--port", port, "--job-workers", 0, **settings) as server,
                ledger.traffic(server, fits=True),
            ):
                assert server.process.wait() == -9, server.log()
            assert ledger.wrong == []
            assert "Traceback" not in server.log()
            # The same in all runs.
            port = urlsplit(server.url).port
        assert {"upload", "promote", "label"} <= ledger.cut
        assert ledger.refused == {}
        ids = ledger.labels[0].content[:1]

        programs.command = recalib_command
        with programs.serve("--port", port, "--job-workers", 0, **settings) as server:
            ledger.check(server)
            with ledger.traffic(server, fits=True):
                ledger.until_acknowledged(2)
            ledger.check(server)
            # The first label counts, whichever run received it.
            other = [{**ids[0], "label": 2}]
            answer = server.ask("POST", f"/v1/models/{MODEL}/labels", json=other)
            assert answer["counts"]["conflict"] == 1
            assert server.stop() == 0
            assert "Traceback" not in server.log()
        # A stopped server flushes everything.
        ledger.check_predictions()


def test_upload_interrupted_by_kill_leaves_no_dataset(programs: Programs) -> None:
    """No blob remains either."""
    body = npz(*draw(200_000, 4, 2.0))
    with programs.serve("--job-workers", 0) as server:
        server.model()
        with half_an_upload(server, body):
            until(lambda: received(programs) > len(body) // 4, "a part of the upload")
            server.kill()
    registry = Registry(f"sqlite:///{programs.home / 'recalib.db'}", "memory://")
    with registry.reading() as tx:
        assert tx.datasets.page(tx.models.get("digits"), None, 9) == []
    registry.close()
    blobs = [path for path in programs.home.glob("blobs/*/*") if path.is_file()]
    assert {path.parent.name for path in blobs} == {"temporary"}
