"""PostgreSQL goes away while a server serves, and comes back."""

from __future__ import annotations

import contextlib

import httpx2
import numpy as np

from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw
from tests.registry.fixtures import start_postgresql
from tests.service.conftest import NPZ, npz

_postgresql = contextlib.contextmanager(start_postgresql)


def test_the_database_stops_and_starts_again(programs: Programs) -> None:
    """What is loaded goes on serving, changes get 503, and nobody has to restart anything."""
    rows, labels = draw(400, 4, 3.0)
    with (
        _postgresql() as postgresql,
        programs.serve(database_url=postgresql.get_uri(), refresh_seconds=0.2) as server,
    ):
        server.model()
        server.upload(rows, labels)
        server.finished(server.ask_fit(promote=True))
        before = server.calibrate(rows[:10], ids=0)
        server.calibrate(rows[:1])
        worker = server.children("worker")

        postgresql.stop()
        until(lambda: server.ask("GET", "/readyz")["registry"] == "unreachable", "the outage")
        for _ in range(20):
            assert server.calibrate(rows[:10], ids=0) == before
        # The key is loaded too; who labels has to wait for the registry.
        assert None not in server.calibrate(rows[:10])["prediction_ids"]
        assert server.ask("GET", "/livez") == {"live": True}
        assert server.ask("GET", "/readyz")["ready"] is True
        _changes_are_refused(server, npz(rows, labels))
        assert "recalib_registry_up 0.0" in server.client.get("/metrics").text

        postgresql.ensure_postgres_running()
        until(lambda: server.ask("GET", "/readyz")["registry"] == "reachable", "its end")
        assert server.finished(server.ask_fit(map="identity"))["result"]["version"] == 2
        server.promote(2)
        assert server.calibrate(rows[:10])["calibrator"] == {"version": 2, "map": "identity"}
        assert "recalib_registry_up 1.0" in server.client.get("/metrics").text
        assert server.children("worker") == worker
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def _changes_are_refused(server: Server, upload: bytes) -> None:
    """With 503, and when to try again."""
    v1 = "/v1/models"
    answers: list[httpx2.Response] = [
        server.client.post(v1, json={"name": "other", "classes": 3}),
        server.client.put(f"{v1}/digits/aliases/champion", json={"version": 1}),
        server.client.post(f"{v1}/digits/calibrators", json={"dataset": "validation"}),
        server.client.put(f"{v1}/digits/datasets/more", content=upload, headers=NPZ),
        server.client.get(v1),
        server.client.post(
            f"{v1}/digits/calibrate?calibrator=1", json={"logits": np.zeros((1, 4)).tolist()}
        ),
    ]
    for answer in answers:
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
