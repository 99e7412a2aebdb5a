"""Promotions while several server processes serve."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator

import httpx2
import numpy as np
import pytest

import recalib
from recalib.registry import Registry
from tests.end_to_end.programs import Programs, Server, probabilities_of, until
from tests.fitting.conftest import draw
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.slow

#: Ten would take ten times the memory and the seconds of their imports, for the same statement.
_PROCESSES = 4
_ROWS = draw(60, 4, 3.0)[0].astype(np.float32)


@pytest.fixture
def server(programs: Programs, empty_database_url: str) -> Iterator[Server]:
    """Two server processes, and versions 1 and 2 of a model."""
    options = ("--workers", 2, "--job-workers", 0)
    settings = {"database_url": empty_database_url, "refresh_seconds": 0.2}
    with programs.serve(*options, **settings) as server:
        server.model()
        server.upload(*draw(400, 4, 3.0))
        jobs = [server.ask_fit(map=map, promote=False) for map in ("identity", "temperature")]
        _work(empty_database_url, programs)
        assert [server.finished(job)["result"]["version"] for job in jobs] == [1, 2]
        yield server


def test_promotions_under_load(server: Server) -> None:
    """No request fails, no response mixes versions, and all processes converge.

    In one test, since starting two server processes takes longer than all of it.
    """
    expected = {version: _local(server, version) for version in (1, 2)}
    server.promote(1)
    _agree(server, 1)

    # Alternate between the versions while six threads send requests.
    versions: Counter[int] = Counter()
    over, failures = threading.Event(), []

    def hammer() -> None:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            while not over.is_set():
                answer = client.post("/v1/models/digits/calibrate", json={"logits": _ROWS.tolist()})
                if answer.status_code != 200:
                    failures.append(answer.text)
                    continue
                version = answer.json()["calibrator"]["version"]
                versions[version] += 1
                probabilities = probabilities_of(answer.json())
                if not np.array_equal(probabilities, expected[version]):
                    failures.append(f"not the probabilities of version {version}")

    threads = [threading.Thread(target=hammer) for _ in range(6)]
    for thread in threads:
        thread.start()
    for step in range(30):
        before = sum(versions.values())
        server.promote(step % 2 + 1)
        until(lambda n=before: sum(versions.values()) > n + 10 or failures, "more answers")  # type: ignore[misc]
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(versions) == {1, 2}

    server.promote(2)
    _agree(server, 2)
    _metrics_add_up(server)


@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_processes_agree_without_polling(programs: Programs, empty_database_url: str) -> None:
    """PostgreSQL notifies all processes; the next poll would be an hour later."""
    settings = {"database_url": empty_database_url, "refresh_seconds": 3600}
    with programs.serve("--workers", _PROCESSES, "--job-workers", 0, **settings) as server:
        server.model()
        server.upload(*draw(400, 4, 3.0))
        jobs = [server.ask_fit(map=map, promote=False) for map in ("identity", "temperature")]
        _work(empty_database_url, programs)
        for job in jobs:
            server.finished(job)
        server.promote(1)
        _agree(server, 1)
        server.promote(2)
        _agree(server, 2)


def _work(database_url: str, programs: Programs) -> None:
    """Run the jobs in this process, which is faster than to start a worker."""
    registry = Registry(database_url, (programs.home / "blobs").as_uri())
    worker = Worker(registry, HANDLERS, name="test")
    while worker.work_once(threading.Event()):
        pass
    registry.close()


def _local(server: Server, version: int) -> np.ndarray:
    """Return the probabilities of a version's downloaded parameter file."""
    path = f"/v1/models/digits/calibrators/{version}/parameters"
    calibrator = recalib.Calibrator.from_bytes(server.client.get(path).content)
    return calibrator.predict(_ROWS)


def _ask_anew(server: Server) -> int:
    """Send a request over a new connection to either process; return the version."""
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        answer = client.post("/v1/models/digits/calibrate", json={"logits": [[0, 1, 2, 3]]})
    version: int = answer.json()["calibrator"]["version"]
    return version


def _agree(server: Server, version: int) -> None:
    """Wait for fifty consecutive responses of `version`, each over a new connection."""
    until(lambda: all(_ask_anew(server) == version for _ in range(50)), f"version {version}")


def _metrics_add_up(server: Server) -> None:
    """A scrape of either process has the requests of both."""
    count = 40
    before = _calibrations(server)
    for _ in range(count):
        _ask_anew(server)
    for _ in range(10):
        assert _calibrations(server) == before + count


def _calibrations(server: Server) -> float:
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        text = client.get("/metrics").text
    labels = r'\{method="POST",route="/v1/models/\{model\}/calibrate",status="200"\}'
    (count,) = re.findall(rf"^recalib_http_requests_total{labels} (\S+)$", text, re.M)
    return float(count)
