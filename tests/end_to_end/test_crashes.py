"""kill -9 of the server: no orphans, nothing lost that was acknowledged, nothing half done."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from numpy.typing import NDArray

from recalib.registry import Registry
from tests.end_to_end.programs import Programs, Server, half_an_upload, received, until
from tests.fitting.conftest import draw
from tests.service.conftest import npz


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


def test_what_was_acknowledged_survives(programs: Programs, empty_database_url: str) -> None:
    """A new server on the same home and port serves the champion as before, at once."""
    rows, labels = draw(500, 4, 3.0)
    settings = {"database_url": empty_database_url}
    with programs.serve(**settings) as server:
        server.model()
        uploaded = server.upload(rows, labels)
        server.finished(server.ask_fit(promote=False))
        server.finished(server.ask_fit(map="identity", promote=False))
        for version in (1, 2, 1, 2):
            server.promote(version)
        before = server.calibrate(rows[:20], ids=0)
        ids = server.calibrate(rows[:40])["prediction_ids"]
        assert _labelled(server, ids[:30], labels) == ["accepted"] * 30
        # Acknowledged a moment before the end:
        waiting = server.ask_fit(promote=False)
        server.promote(1, alias="shadow")
        server.kill()
    until(lambda: not programs.alive(), "the children to end")

    port = urlsplit(server.url).port
    with programs.serve("--port", port, "--job-workers", 0, **settings) as again:
        assert again.calibrate(rows[:20], ids=0) == before
        assert before["calibrator"]["version"] == 2
        # What was acknowledged is there; ids of the server that died are good, and so is its key.
        assert _labelled(again, ids, labels) == ["duplicate"] * 30 + ["accepted"] * 10
        assert _labelled(again, ids[:1], labels[:1] ^ 1) == ["conflict"]
        assert again.calibrate(rows[:1], calibrator="shadow")["calibrator"]["version"] == 1
        assert again.ask("GET", "/v1/models/digits/datasets/validation") == uploaded
        history = again.ask("GET", "/v1/models/digits/aliases/champion/history")["items"]
        assert [one["to_version"] for one in history] == [2, 1, 2, 1]
        assert again.job(waiting)["state"] in ("queued", "running", "succeeded")


def _labelled(server: Server, ids: list[str], labels: NDArray[Any]) -> list[str]:
    """Send the labels of predictions, and return what became of each."""
    pairs = zip(ids, labels.tolist(), strict=False)
    batch = [{"prediction_id": one, "label": label} for one, label in pairs]
    items = server.ask("POST", "/v1/models/digits/labels", json=batch)["items"]
    return [one["status"] for one in items]


def test_an_upload_cut_by_kill_leaves_no_dataset(programs: Programs) -> None:
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
