"""kill -9 of the server, at chosen moments and under traffic: nothing lost, nothing half done."""

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

#: In the middle of an upload's transaction (its blob stands already), between the two halves of a
#: promotion, in the middle of a batch of labels, and when a flush is written down but not known to
#: be; each after some that went well.
_DEATHS = [
    ("inside", 3, "INSERT INTO datasets"),
    ("inside", 4, "UPDATE aliases"),
    ("inside", 3, "INSERT INTO labels"),
    ("after", 5, "INSERT INTO traffic"),
]


def test_no_orphans(programs: Programs) -> None:
    """Neither server processes nor workers outlive the server, and its port is free again."""
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
    """Each life of it ends in the middle of something else; the last answers for all, at once."""
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
            # The same for all lives.
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
            # Who labelled first stands, whichever life it was in.
            other = [{**ids[0], "label": 2}]
            answer = server.ask("POST", f"/v1/models/{MODEL}/labels", json=other)
            assert answer["counts"]["conflict"] == 1
            assert server.stop() == 0
            assert "Traceback" not in server.log()
        # One that is told to stop writes down everything.
        ledger.check_predictions()


def test_upload_interrupted_by_kill_leaves_no_dataset(programs: Programs) -> None:
    """And no blob under a name."""
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
