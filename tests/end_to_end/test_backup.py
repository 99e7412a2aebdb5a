"""Back up a server under traffic, restore into the other database, and serve it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from typing import Any

import httpx2
import pytest

from tests.end_to_end.programs import Programs, recalib_command
from tests.fitting.conftest import draw

pytestmark = pytest.mark.slow


def _recalib(programs: Programs, *arguments: object, **settings: object) -> Any:
    process = subprocess.run(
        recalib_command(*arguments, "--json"),
        env=programs.environment(**settings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, ""), process
    return json.loads(process.stdout)


@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_restored_backup_serves_the_same_answers(
    programs: Programs, empty_database_url: str
) -> None:
    """SQLite to PostgreSQL: the same probabilities, prediction ids and keys."""
    rows, labels = draw(400, 4, 3.0)
    to = programs.folder / "backup.zip"
    with programs.serve() as server:
        server.model()
        server.upload(rows, labels)
        server.finished(server.ask_fit(promote=True))
        before = server.calibrate(rows[:20])
        labelled, unlabelled = before["prediction_ids"][:10], before["prediction_ids"][10:]
        assert _label(server.client, labelled)["accepted"] == 10
        key = _recalib(programs, "keys", "create", "web", "--scope", "admin")["key"]
        with _traffic(server.url):
            backup = _recalib(programs, "backup", to)
        assert backup["rows"]["calibrators"] == 1
        assert server.stop() == 0
    there = {
        "database_url": empty_database_url,
        "blob_url": (programs.folder / "other-blobs").as_uri(),
    }
    restored = _recalib(programs, "restore", to, **there)
    assert restored["rows"] == backup["rows"]
    with programs.serve("--require-keys", "--job-workers", 0, **there) as server:
        server.client.headers["Authorization"] = f"Bearer {key}"
        after = server.calibrate(rows[:20])
        assert after["probabilities"] == before["probabilities"]
        assert after["calibrator"] == before["calibrator"]
        assert _label(server.client, labelled)["duplicate"] == 10
        assert _label(server.client, unlabelled)["accepted"] == 10
        refused = subprocess.run(
            recalib_command("restore", to, "--force"),
            env=programs.environment(**there),
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 2
        assert "stop every server and worker first" in refused.stderr
        assert len(server.versions()) == 1


def _label(client: httpx2.Client, ids: list[str]) -> Any:
    body = [{"prediction_id": prediction_id, "label": 1} for prediction_id in ids]
    answer = client.post("/v1/models/digits/labels", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["counts"]


@contextlib.contextmanager
def _traffic(url: str) -> Any:
    """Write continuously."""
    over, statuses = threading.Event(), []

    def write() -> None:
        with httpx2.Client(base_url=url, timeout=120) as client:
            while not over.is_set():
                name = f"m{len(statuses)}"
                client.post("/v1/models", json={"name": name, "classes": 2}).raise_for_status()
                statuses.append(name)
                over.wait(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert statuses
